"""Failures of the process that judges public tests: the model never sees them, and they end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from coding_model_project.errors import DataError, SandboxError

pytestmark = pytest.mark.verl


class Actor:
    """A handle whose calls return or raise the given outcomes."""

    def __init__(self, *ends) -> None:
        self.ends = list(ends)
        self.look = SimpleNamespace(remote=self._call)

    async def _call(self, *_):
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


async def test_an_error_of_the_judge_is_its_own_and_a_dead_process_is_replaced(monkeypatch):
    from ray.exceptions import ActorDiedError, RayTaskError

    from coding_model_project.verl_ext.rewards.on_node import PublicJudge

    raised = RayTaskError("look", "a long traceback", DataError("mine/9: no file has it"))
    actors = [Actor(raised.as_instanceof_cause(), ActorDiedError()), Actor("seen")]
    judge = PublicJudge(SimpleNamespace(run_dir="x"))
    monkeypatch.setattr(judge, "_joined", lambda: actors.pop(0))
    with pytest.raises(DataError) as caught:
        await judge.look("mine/9", "x")
    assert type(caught.value) is DataError
    assert str(caught.value) == "mine/9: no file has it"
    with pytest.raises(SandboxError, match="public tests died"):
        await judge.look("mine/1", "x")
    assert await judge.look("mine/1", "x") == "seen"
