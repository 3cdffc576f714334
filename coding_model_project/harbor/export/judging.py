"""A judge of exported tasks in the embedded sandbox, without a room for their verifier.

A verifier in a room of its own costs a root, two PID namespaces and a watched interpreter. An exported
task's verifier gets only the program from the agent, and judges it by this package's rules. The embedded
sandbox therefore gives the same rewards at a tenth of the cost. It judges only tasks that are, byte for
byte, as this version exports them, and only programs that mean the same as bytes and as text. In all
other cases the judge returns None, and the verifier runs.

The sandbox denies some actions that a room allows, such as starting another program. So the verifier
judges a failing program again, unless its text shows that it only computes.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from coding_model_project.codec import from_json
from coding_model_project.errors import ConfigError, UngradableError
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.limiter import Limiter
from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.export import exporting
from coding_model_project.harbor.export.forker import PROGRAM_FILE
from coding_model_project.harbor.export.verifier import ADDRESS_MB, CPU_GRACE, PROGRAM_BYTES
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.rooms.rooms import PATH
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import (
    Asserts,
    Call,
    ErrorType,
    Execution,
    Input,
    Isolation,
    Limits,
    Problem,
    Program,
    Stdin,
    Test,
)

_TESTS = frozenset({"cases.json", "judge.zip", "test.sh"})
_COMPUTING = """
abc array base64 binascii bisect calendar cmath collections contextlib copy dataclasses datetime decimal
enum fractions functools hashlib heapq itertools json math numbers operator queue random re statistics
string struct sys textwrap time types typing unicodedata zlib
"""
"""Modules that need nothing that the sandbox denies."""

_ELSEWHERE = re.compile(
    r"\b(breakpoint|compile|eval|exec|getattr|globals|locals|modules|open|vars)\b|__(?!init__|name__)[a-z]+__"
)
"""Ways to reach files, or modules that the program's text does not name."""

_BOM = b"\xef\xbb\xbf"
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
        source = None if content is None else _text(content)
        known = None if source is None else self._look_up(task, step)
        if source is None or known is None or (grader := await self._started()) is None:
            return None
        problem = known.problem
        try:
            verdict = await grader.grade_code(problem, source)
        except UngradableError:  # an outage is not a score; the verifier may still give one
            return None
        errors = [result.error for result in verdict.results]
        if verdict.judge_s >= known.budget_s or ErrorType.memory_limit in errors:
            return None
        if any(errors) and not _only_computes(source):
            return None
        n_passed = sum(error is None for error in errors)
        lines = [
            f"test {number}: {error}" for number, error in enumerate(errors) if error is not None
        ]
        rewards = {
            "reward": float(n_passed == len(problem.tests)),
            "pass_rate": n_passed / len(problem.tests),
        }
        lines.append(f"{n_passed} of {len(problem.tests)} tests passed")
        return Judged(rewards=rewards, said="\n".join(lines) + "\n")

    async def _started(self) -> ExecutionGrader | None:
        """Return the grader, started once; None if programs cannot run in the Python of rooms."""
        async with self._starting:
            python = shutil.which("python3", path=PATH) or _own_python()
            if self._grader is None and not self._broken and python is not None:
                try:
                    sandbox = _WithItsFile(python=python)
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


class _WithItsFile(EmbeddedSandbox):
    """The embedded sandbox with the program's own file in it, as in an exported task."""

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """See `Sandbox.run`."""
        files = {PROGRAM_FILE: program.source.encode()}
        own = Program(source=program.source, language=program.language, files=files)
        return await super().run(own, inputs, limits, stop_when=stop_when)


def _own_python() -> str | None:
    path = f"{sys.base_prefix}/bin/python3"
    return path if os.access(path, os.X_OK) else None


def _text(content: bytes) -> str | None:
    """Return a program's text; None if it may mean something else than the bytes."""
    if len(content) > PROGRAM_BYTES or content.startswith(_BOM):
        return None
    head = b"\n".join(content.replace(b"\r", b"\n").split(b"\n", 3)[:3])
    if not content.isascii() and b"coding" in head:
        return None
    with suppress(UnicodeDecodeError):
        return content.decode()
    return None


def _only_computes(source: str) -> bool:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else (node.module or "").partition(".")[0])
    return names <= set(_COMPUTING.split()) and _ELSEWHERE.search(source) is None


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
        and step.verifier_environment == task.config.environment == _plain(task)
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
    return _Known(_problem_of(cases, task.name), cases["budget_s"])


def _plain(task: Task) -> object:
    """Return a default environment, of the type of the task's."""
    return type(task.config.environment)()


def _problem_of(cases: Mapping[str, Any], name: str) -> Problem:
    limits = cases["limits"]
    return Problem(
        id=name,
        split="train",
        statement="",
        limits=Limits(
            cpu_s=limits["cpu_s"] * CPU_GRACE,
            wall_s=limits["wall_s"],
            memory_mb=limits["memory_mb"] + ADDRESS_MB,
            output_kb=limits["output_kb"],
        ),
        comparison=cases["comparison"],
        atol=cases["tolerance"]["atol"],
        rtol=cases["tolerance"]["rtol"],
        isolation=Isolation(cases["isolation"]),
        tests=tuple(map(_test, cases["tests"])),
    )


def _test(case: Mapping[str, Any]) -> Test:
    if "stdin" in case:
        return Test(Stdin(case["stdin"]), expected=case["expected"])
    if "call" in case:
        arguments = tuple(map(from_json, case["args"]))
        return Test(Call(case["call"], arguments), expected=from_json(case["expected"]))
    return Test(Asserts(case["asserts"], case["entry_point"]))
