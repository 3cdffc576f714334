"""A judge of exported tasks in the embedded sandbox, without a room for their verifier.

A verifier in a room of its own costs a root, two PID namespaces and another interpreter. An exported
task's verifier gets only the program from the agent, and judges it by this package's rules, in processes
of the embedded sandbox. That sandbox therefore gives the same rewards at a fraction of the cost. It
judges only tasks that are, byte for byte, as this version exports them. In all other cases the judge
returns None, and the verifier runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from coding_model_project.errors import ConfigError, UngradableError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.retries import Limiter
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.export import exporting
from coding_model_project.harbor.export.verifier import PROGRAM_BYTES, problem_of
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.rooms.rooms import PATH
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Problem

_TESTS = frozenset({"cases.json", "judge.zip", "test.sh"})
_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The rewards that the verifier would have given."""

    rewards: dict[str, float]
    said: str
    """A replacement for the verifier's output."""


class _Known(NamedTuple):
    problem: Problem
    budget_s: float
    """Wall seconds of all tests, after which the verifier stops running them."""


class ExportedJudge:
    """A judge of exported tasks. An async context manager; its sandbox starts with the first task."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._grader: ExecutionGrader | None = None
        self._broken = False
        self._known: dict[Path, tuple[object, _Known | None]] = {}

    async def __aenter__(self) -> ExportedJudge:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def judge(self, task: Task, step: Step, artifacts: Tree) -> Judged | None:
        """Judge the program in the collected artifacts; None leaves it to the verifier."""
        content = artifacts.file(exporting.PROGRAM.lstrip("/"))
        if content is None or len(content) > PROGRAM_BYTES:
            return None
        known = self._look_up(task, step)
        if known is None or (grader := await self._started()) is None:
            return None
        try:
            verdict = await grader.grade_code(known.problem, content.decode())
        except (UngradableError, UnicodeDecodeError):  # an outage is not a score
            return None
        if verdict.judge_s >= known.budget_s:
            return None
        errors = [result.error for result in verdict.results]
        n_passed = errors.count(None)
        rewards = {"reward": float(n_passed == len(errors)), "pass_rate": n_passed / len(errors)}
        lines = [f"test {number}: {error}" for number, error in enumerate(errors) if error]
        lines.append(f"{n_passed} of {len(errors)} tests passed")
        return Judged(rewards=rewards, said="\n".join(lines) + "\n")

    async def _started(self) -> ExecutionGrader | None:
        """Return the grader, started once; None if programs cannot run in the Python of rooms."""
        async with self._starting:
            python = shutil.which("python3", path=f"{PATH}:{sys.base_prefix}/bin")
            if self._grader is None and not self._broken and python is not None:
                try:
                    sandbox = EmbeddedSandbox(python=python)
                    await self._stack.enter_async_context(sandbox)
                except (ConfigError, UngradableError):
                    self._broken = True
                else:
                    limiter = Limiter(len(os.sched_getaffinity(0)))
                    self._grader = ExecutionGrader(sandbox, stop_early=False, limiter=limiter)
        return self._grader

    def _look_up(self, task: Task, step: Step) -> _Known | None:
        """Return the problem that a task was exported from, if the task is unchanged."""
        try:
            state = _state(task)
            known = self._known.get(task.path)
            if known is None or known[0] != state:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                known = self._known[task.path] = state, _exported(task, step)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known[1]


def _state(task: Task) -> object:
    """Return a value that changes with the files that `_exported` reads."""
    files = [task.path / "tests" / name for name in sorted(_TESTS)]
    files += [task.path / "tests", task.environment_dir, task.environment_dir / "Dockerfile"]
    found = [path.stat() for path in files]
    return [(one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found]


def _exported(task: Task, step: Step) -> _Known | None:
    """Return the problem of an exported task; None if the task was changed.

    Raises:
        OSError, ValueError, KeyError, TypeError: a file is missing, or the cases were changed.
    """
    tests = task.path / "tests"
    dockerfile = task.environment_dir / "Dockerfile"
    as_written = (
        step.tests == (tests,)
        and step.verifier_environment == task.config.environment == type(task.config.environment)()
        and step.verifier_image == task.environment_dir
        and not step.verifier.env
        and step.verifier.user is None
        and {path.name for path in tests.iterdir()} == _TESTS
        and not any(path.is_symlink() for path in (tests, *tests.iterdir()))
        and (tests / "test.sh").read_text() == exporting.TEST
        and (tests / "judge.zip").read_bytes() == exporting.judge()
        and dockerfile.read_text() == exporting.DOCKERFILE
        and [path.name for path in task.environment_dir.iterdir()] == ["Dockerfile"]
    )
    if not as_written:
        return None
    cases = json.loads((tests / "cases.json").read_text())
    return _Known(problem_of(cases), cases["budget_s"])
