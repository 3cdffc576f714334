"""The watch over workers ends a run for a dead worker, not for one out of reach for a moment."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.verl


@pytest.fixture
def watched(monkeypatch):
    """Run `watching` over an actor whose pings raise these errors in turn; return the ends."""
    import ray

    from coding_model_project.verl_ext.trainers import watch

    def run(*errors):
        waiting, ended, done = list(errors), [], threading.Event()

        def get(_, timeout):
            if not waiting:
                done.set()
                return
            raise waiting.pop(0)

        monkeypatch.setattr(watch, "_PING_EVERY_S", 0.01)
        monkeypatch.setattr(ray, "get", get)
        ping = SimpleNamespace(remote=lambda: None)
        with watch.watching([SimpleNamespace(__ray_ready__=ping)], ended.append):
            assert done.wait(60)
        return ended

    return run


def test_a_worker_that_is_busy_or_out_of_reach_for_a_moment_is_not_dead(watched):
    from ray.exceptions import ActorUnavailableError, GetTimeoutError

    assert watched(GetTimeoutError("busy"), ActorUnavailableError("the link is down", None)) == []


def test_a_dead_worker_ends_the_run(watched):
    from ray.exceptions import ActorDiedError

    (reason,) = watched(ActorDiedError())
    assert reason.startswith("The actor died")


def test_a_weight_sync_that_hangs_ends_the_run_and_one_that_ends_in_time_does_not():
    from coding_model_project.verl_ext.trainers import watch

    ended, reasons = threading.Event(), []

    def fatal(reason):
        reasons.append(reason)
        ended.set()

    with watch.deadline(60.0, fatal, "too late"):
        pass
    with watch.deadline(0.05, fatal, "the weight sync hangs"):
        assert ended.wait(60)
    assert reasons == ["the weight sync hangs"]
