"""An adapter for Inspect AI: a sandbox without containers, a scorer, and a task of problems.

    inspect eval inspect_evals/humaneval --sandbox coding_model
    inspect eval coding_model_project/code_problems -T problems=problems.jsonl

Inspect finds them by the entry point `inspect_ai`. `docs/inspect.md` shows them in use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar, overload

import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState, generate
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from coding_model_project.api import Judge
from coding_model_project.concurrency import Background
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.grading.prompts import PromptStyle, solve_messages
from coding_model_project.integrations.given_problems import Problems, by_id, named
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Execution, Limits, Problem, Program, Status, Stdin

T = TypeVar("T")
R = TypeVar("R")


async def _on(background: Background[T], use: Callable[[T], Coroutine[Any, Any, R]]) -> R:
    """Run `use` without blocking Inspect's event loop, which may be trio's."""
    return await anyio.to_thread.run_sync(lambda: background.run(use), abandon_on_cancel=True)


# ── the sandbox ───────────────────────────────────────────────────────────────────────────────────

_HOME = PurePosixPath("/tmp")
"""The programs' working directory, in a file system of their own."""

_MEMORY_MB = 1024
_UNTIMED_S = 600.0
"""CPU seconds of a program if the caller sets no time-out."""

_PYTHON = re.compile(r"(.*/)?python(3(\.\d+)?)?")
_NO_MATTER = re.compile(r"-[uBIsSEq]+")
"""Python options that have no effect here."""

_programs = Background(EmbeddedSandbox)


@sandboxenv(name="coding_model")
class CodingModelSandbox(SandboxEnvironment):
    """A sandbox that runs each Python program in a confined process of its own.

    It runs `python -c`, `python FILE` and `python -`. Any other command raises PermissionError, so a
    scorer that needs more ends in an error and not in a score. Programs see the files that Inspect wrote;
    their own files are lost when they end. A time-out counts CPU time, with twice as much for the wall
    clock, so that a loaded machine does not fail a program.
    """

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}
        """File contents by path below the working directory."""

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Return twice the number of CPU cores: programs use one each, and samples wait for a model."""
        return 2 * usable_cores()

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Start the sandbox, which later tasks of this process share. It stops with the process.

        Raises:
            SandboxError: the sandbox does not work on this machine.
        """

        async def started(sandbox: EmbeddedSandbox) -> str:
            return sandbox.identity

        await _on(_programs, started)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Give a sample an empty working directory."""
        return {"default": cls()}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Delete a sample's files."""
        for environment in environments.values():
            environment.as_type(CodingModelSandbox)._files.clear()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a Python program; see `SandboxEnvironment.exec`.

        Raises:
            PermissionError: the command is not a Python program.
            SandboxUserUnsupportedError: a user is given.
            SandboxUnavailableError: the sandbox itself failed.
            TimeoutError: the program exceeded the time-out.
            OutputLimitExceededError: the program printed more than Inspect allows.
            FileNotFoundError: Inspect wrote no file of the program's name.
            UnicodeDecodeError: the standard input or the program is not text.
        """
        if user is not None:
            raise SandboxUserUnsupportedError(f"user={user!r}: programs run as one user only")
        text = input.decode() if isinstance(input, bytes) else input or ""
        source, name, arguments, text = self._program(cmd, text)
        folder = self._path(cwd) if cwd else ""
        if arguments or env or folder:
            source = _prepared(source, name, arguments, env or {}, folder)
        seconds = float(timeout or _UNTIMED_S)
        limits = Limits(
            cpu_s=seconds,
            wall_s=2 * seconds,
            memory_mb=_MEMORY_MB,
            output_kb=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE >> 10,
        )
        program = Program(source=source, files=dict(self._files))
        try:
            (execution,) = await _on(
                _programs, lambda sandbox: sandbox.run(program, [Stdin(text)], limits)
            )
        except (SandboxError, ConfigError) as error:
            raise SandboxUnavailableError(f"sandbox=coding_model: {error}") from error
        return _result(execution, seconds)

    def _program(self, cmd: Sequence[str], text: str) -> tuple[str, str, list[str], str]:
        """Return a command's source, file name, arguments and standard input."""
        rest = list(cmd[1:])
        while rest and _NO_MATTER.fullmatch(rest[0]):
            rest.pop(0)
        if not cmd or not _PYTHON.fullmatch(cmd[0]) or (rest and rest[0] in ("-m", "-V", "--help")):
            raise PermissionError(
                f"sandbox=coding_model runs python programs only (-c CODE, FILE or -), not "
                f"{' '.join(cmd)[:80]!r}; run this task with --sandbox docker"
            )
        if not rest or rest[0] == "-":
            return text, "<stdin>", rest[1:], ""
        if rest[0] == "-c" and len(rest) > 1:
            return rest[1], "-c", rest[2:], text
        if rest[0].startswith("-"):
            raise PermissionError(
                f"sandbox=coding_model: python's option {rest[0]!r} is not supported; use -c CODE, FILE "
                "or -"
            )
        path = self._path(rest[0])
        if path not in self._files:
            raise FileNotFoundError(f"{rest[0]}: no such file was written to this sandbox")
        return self._files[path].decode(), rest[0], rest[1:], text

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Store a file for later programs; see `SandboxEnvironment.write_file`.

        Raises:
            PermissionError: the path is outside the working directory.
            IsADirectoryError: the path is a folder.
        """
        path = self._path(file)
        if self._is_folder(path):
            raise IsADirectoryError(f"{file}: is a directory")
        self._files[path] = contents.encode() if isinstance(contents, str) else contents

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return a stored file; see `SandboxEnvironment.read_file`.

        Raises:
            FileNotFoundError: no such file was written.
            IsADirectoryError: the path is a folder.
            PermissionError: the path is outside the working directory.
            UnicodeDecodeError: the file is not text.
            OutputLimitExceededError: the file is larger than Inspect allows.
        """
        path = self._path(file)
        if self._is_folder(path):
            raise IsADirectoryError(f"{file}: is a directory")
        if path not in self._files:
            raise FileNotFoundError(f"{file}: no such file was written to this sandbox")
        contents = self._files[path]
        if len(contents) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return contents.decode() if text else contents

    def _path(self, file: str) -> str:
        """Return the path relative to the working directory; "" for the directory itself."""
        path = PurePosixPath(os.path.normpath(_HOME / file))
        if not path.is_relative_to(_HOME):
            raise PermissionError(f"{file}: expected a path below {_HOME}")
        return "" if path == _HOME else str(path.relative_to(_HOME))

    def _is_folder(self, path: str) -> bool:
        return not path or any(name.startswith(f"{path}/") for name in self._files)


def _prepared(
    source: str, name: str, arguments: Sequence[str], env: dict[str, str], folder: str
) -> str:
    """Return the program with its arguments, environment and working directory set up."""
    return (
        f"import os, sys\nsys.argv = {[name, *arguments]!r}\nos.environ.update({env!r})\n"
        f"if {folder!r}: os.chdir({folder!r})\ndel os, sys\n"
        f"exec(compile({source!r}, {name!r}, 'exec'))\n"
    )


def _result(execution: Execution, seconds: float) -> ExecResult[str]:
    """Convert an execution to Inspect's result.

    Raises:
        TimeoutError, OutputLimitExceededError: the execution exceeded this limit.
    """
    match execution.status:
        case Status.cpu_timeout | Status.wall_timeout:
            raise TimeoutError(f"the program ran for more than {seconds:g} s")
        case Status.output_limit:
            limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(limit, execution.stdout)
        case Status.finished:
            return ExecResult(True, 0, execution.stdout, execution.stderr_tail)
        case Status.signalled | Status.killed | Status.memory_limit:
            stderr = execution.stderr_tail or f"ended by {execution.status}"
            return ExecResult(False, execution.exit_code or 137, execution.stdout, stderr)
        case _:
            code = execution.exit_code or 1
            return ExecResult(False, code, execution.stdout, execution.stderr_tail)


# ── problems of ours ──────────────────────────────────────────────────────────────────────────────

_judges = Background(Judge)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The caller's problems. Inspect logs a scorer's arguments, and of this one only the name."""

    name: str
    problems: Mapping[str, Problem]


def code_scorer(problems: Problems, *, bare: bool = False) -> Scorer:
    """Score a completion by its problem's hidden tests: CORRECT if it passes all of them.

    The score's metadata has the share of tests passed and the error. If a completion cannot be judged,
    the scorer raises: Inspect records an error for the sample and not a score.

    Args:
        problems: the samples' problems, or a name or path for `cmp.load`. A sample's problem is
            `metadata["problem_id"]`, or else its own id.
        bare: completions are programs without a Markdown fence.

    Raises:
        ConfigError: there are no such problems.
    """
    if isinstance(problems, str | Path):
        return _code_scorer(str(problems), bare)
    known = by_id(problems)
    return _code_scorer(_Given(name=f"{len(known)} problems", problems=known), bare)


@scorer(metrics=[accuracy(), stderr()], name="code_scorer")
def _code_scorer(problems: str | _Given, bare: bool = False) -> Scorer:
    known = by_id(problems) if isinstance(problems, str) else problems.problems

    async def score(state: TaskState, target: Target) -> Score:
        found = state.metadata.get("problem_id", state.sample_id)
        problem = named(known, found, "problem_id")
        completion = state.output.completion
        verdict = await _on(_judges, lambda judge: judge.grade(problem, completion, bare=bare))
        failing = next((result for result in verdict.results if result.error), None)
        return Score(
            value=CORRECT if verdict.passed else INCORRECT,
            answer=verdict.code,
            explanation=failing.detail if failing else None,
            metadata={
                "pass_fraction": verdict.pass_fraction,
                "error": str(verdict.error) if verdict.error else None,
                "sandbox": verdict.sandbox,
                "grader_version": verdict.grader_version,
            },
        )

    return score


def code_samples(problems: Iterable[Problem], *, bare: bool = False) -> MemoryDataset:
    """Make a data set of problems for a task with `code_scorer`."""
    style = PromptStyle.bare if bare else PromptStyle.fenced
    return MemoryDataset(
        [
            Sample(
                id=problem.id,
                input=[
                    ChatMessageUser(content=message["content"])
                    for message in solve_messages(problem, style=style)
                ],
                metadata={"problem_id": problem.id, "tags": list(problem.tags)},
            )
            for problem in problems
        ]
    )


@task
def code_problems(problems: str, bare: bool = False) -> Task:
    """Ask a model for a program per problem and judge it.

    Args:
        problems: a file of problems or the name of a data set, for `cmp.load`.
        bare: ask for programs without a Markdown fence.
    """
    return Task(
        dataset=code_samples(by_id(problems).values(), bare=bare),
        solver=generate(),
        scorer=code_scorer(problems, bare=bare),
    )
