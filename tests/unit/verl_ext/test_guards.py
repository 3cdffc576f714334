"""Guards that end an unstable training."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.verl_ext.trainers import guards
from coding_model_project.verl_ext.trainers.guards import Guards, no_program
from tests.text_cases import sources

pytestmark = pytest.mark.verl

NONE = dict.fromkeys(("max_grad_norm", "min_entropy", "max_entropy"))


def bounded(**bounds) -> Guards:
    return Guards({**NONE, "patience": 2, **bounds})


def test_without_bounds_nothing_is_reported_and_nothing_ends():
    unbounded = bounded()
    metrics = {"actor/grad_norm": math.inf, "actor/entropy": math.nan}
    for step in range(5):
        assert unbounded.check(metrics) == {}
        unbounded.end(metrics, step)


def test_a_bound_that_is_passed_twice_in_a_row_ends_the_run():
    guarded = bounded(max_grad_norm=1.0)
    counts = []
    for step, norm in enumerate((2.0, 0.5, 2.0)):
        metrics = {"actor/grad_norm": norm}
        counts.append(guarded.check(metrics)["guard/max_grad_norm"])
        guarded.end(metrics, step)
    assert counts == [1, 0, 1]
    metrics = {"actor/grad_norm": 3.0}
    guarded.check(metrics)
    with pytest.raises(TrainingError) as caught:
        guarded.end(metrics, 4)
    for word in ("step 4", "actor/grad_norm is 3", "coding.training.guards.max_grad_norm=1"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("bound", "metric", "inside", "outside"),
    [
        ("min_entropy", "actor/entropy", 0.5, 0.1),
        ("max_entropy", "actor/entropy", 0.1, 0.5),
        ("max_grad_norm", "actor/grad_norm", 0.1, math.nan),
    ],
)
def test_which_side_of_a_bound_is_outside(bound, metric, inside, outside):
    guarded = bounded(**{bound: 0.3})
    assert guarded.check({metric: inside}) == {f"guard/{bound}": 0}
    assert guarded.check({metric: outside}) == {f"guard/{bound}": 1}
    assert guarded.check({}) == {f"guard/{bound}": 1}  # not measured in this step


@pytest.mark.parametrize(("style", "other"), [("fenced", "bare"), ("bare", "fenced")])
def test_a_step_without_any_program_names_the_likely_cause(style, other):
    said = no_program({"judge/no_code": 1.0}, style)
    assert f"coding.prompt={style}: " in said and f"data rows --prompt {style}" in said
    assert said.endswith(f"coding.prompt={other}")
    assert no_program({"judge/no_code": 0.99}, style) is None
    assert no_program({"judge/infra_rate": 1.0}, style) is None


# The bound on the mismatch of rollout and trainer.


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["hardware=cpu"], 0.01),
        (["hardware=gpu_1x"], 0.1),
        (["hardware=gpu_1x", "+actor_rollout_ref.rollout.quantization=fp8"], 0.3),
        (["hardware=cpu", "coding.mode=colocate_async"], 0.1),
        (["hardware=cpu", "actor_rollout_ref.rollout.top_p=0.5"], 0.01 + math.log(2)),
        (["hardware=cpu", "coding.training.guards.max_mismatch=0.5"], 0.5),
    ],
)
def test_the_bound_follows_the_precision(overrides, expected):
    assert guards.mismatch_limit(compose_recipe("grpo", overrides)) == pytest.approx(expected)


@pytest.mark.parametrize("found", [0.02, 10.8, math.nan])
def test_a_run_ends_above_the_bound(found):
    guards.check_mismatch(0.009, 0.01, step=1)
    with pytest.raises(TrainingError, match=r"step 3: rollout/mismatch is .*max_mismatch=0\.01"):
        guards.check_mismatch(found, 0.01, step=3)


# The watch over workers ends a run for a dead worker, not for one out of reach for a moment.


@pytest.fixture
def watched(monkeypatch):
    """Run `watching` over an actor whose pings raise these errors in turn; return the ends."""
    import ray

    def run(*errors):
        waiting, ended, done = list(errors), [], threading.Event()

        def get(_, timeout):
            if not waiting:
                done.set()
                return
            raise waiting.pop(0)

        monkeypatch.setattr(guards, "_PING_EVERY_S", 0.01)
        monkeypatch.setattr(ray, "get", get)
        ping = SimpleNamespace(remote=lambda: None)
        with guards.watching([SimpleNamespace(__ray_ready__=ping)], ended.append):
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
    ended, reasons = threading.Event(), []

    def fatal(reason):
        reasons.append(reason)
        ended.set()

    with guards.deadline(60.0, fatal, "too late"):
        pass
    with guards.deadline(0.05, fatal, "the weight sync hangs"):
        assert ended.wait(60)
    assert reasons == ["the weight sync hangs"]


# A run that must end does so in every state of its folder.

SOURCES = sources(__file__)

END = SOURCES["end"]


def test_it_ends_in_a_good_a_missing_and_a_hung_folder(tmp_path):
    good, missing, hung = (tmp_path / name for name in ("good", "missing", "hung"))
    good.mkdir()
    hung.mkdir()
    os.mkfifo(hung / "fatal.txt")  # without a reader, so that open never returns
    ends = [
        subprocess.Popen([sys.executable, "-c", END, folder], stderr=subprocess.PIPE, text=True)
        for folder in (good, missing, hung)
    ]
    said = [process.communicate(timeout=60)[1] for process in ends]
    assert [process.returncode for process in ends] == [3, 3, 3], said
    assert (good / "fatal.txt").read_text() == "a worker died\n"
    assert said[1] == f"{missing}: No such file or directory; a worker died\n"
