"""The public Python API: `judge` one completion, a `Judge` for many, `load` problems.

Import its names from `coding_model_project`. `docs/python-api.md` shows them in use.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal, Self, overload

from coding_model_project.concurrency import Background
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ConfigError, SandboxError, UngradableError
from coding_model_project.grading.base import judge_completions
from coding_model_project.grading.extract import extract_for
from coding_model_project.grading.judge import AnyGrader, start_graders
from coding_model_project.grading.wellformed import check_problem
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.languages import named
from coding_model_project.sandbox.sandbox_config import RETRY_S
from coding_model_project.types import Problem, Verdict

_REQUESTS = 32
"""Default number of concurrent programs on a sandbox service; `workers` overrides it."""


class Judge:
    """A judge of many completions in one sandbox. Use it as `async with Judge() as judge`.

    The sandbox starts on entry. On exit, every process that it started ends. Verdicts are cached: a
    program already judged on the same problem does not run again. Use a judge only from the event loop
    that entered it; concurrent calls are safe.

    Args:
        workers: the number of programs judged concurrently; by default one per CPU core, or 32 on a
            service.
        sandbox: "embedded" (needs no service), the URL of a SandboxFusion server, "dns+http://NAME:PORT"
            for all addresses of a name, "file:PATH" for all lines of a file, a list of these for
            identical servers, or your own `Sandbox`, not yet started.
        bare: treat completions as programs without a Markdown fence.
        stop_early: stop at a program's first failing test. Saves time if only `passed` matters;
            `pass_fraction` then counts the tests that did not run as failed.
        min_tier: refuse to start the embedded sandbox with weaker isolation: "rlimit", "seccomp" or
            "namespaces".
        retry_s: the seconds for which a request is retried that the servers of `sandbox` fail to
            answer, before `SandboxError`. After an outage of this length, further requests are tried
            only once. Without effect on other sandboxes.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        sandbox: str | Sequence[str] | Sandbox = "embedded",
        bare: bool = False,
        stop_early: bool = False,
        min_tier: str = "seccomp",
        retry_s: float = RETRY_S,
    ) -> None:
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise ConfigError(f"workers={workers!r}: expected a whole number of at least 1")
        if isinstance(retry_s, bool) or not isinstance(retry_s, int | float) or not retry_s >= 0:
            raise ConfigError(f"retry_s={retry_s!r}: expected seconds of at least 0")
        self._sandbox = _sandbox(sandbox, workers, min_tier, retry_s)
        self._local = isinstance(sandbox, str) and sandbox == "embedded"
        self._at_once = workers or (usable_cores() if self._local else _REQUESTS)
        self._bare, self._stop_early = bare, stop_early
        self._stack = AsyncExitStack()
        self._grader: AnyGrader | None = None
        self._checked: dict[str, Problem] = {}

    @property
    def identity(self) -> str:
        """The sandbox's back end, isolation tier and interpreter, as recorded in each verdict.

        Raises:
            SandboxError: the judge is not started.
        """
        return self._sandbox.identity

    async def __aenter__(self) -> Self:
        """Start the sandbox.

        Raises:
            SandboxError: the sandbox does not start on this machine, or the service is unreachable.
            ConfigError: the address is not that of a SandboxFusion server.
        """
        from coding_model_project.harbor import task_grader

        graders = await self._stack.enter_async_context(
            start_graders(
                self._sandbox,
                at_once=self._at_once,
                stop_early=self._stop_early,
                tasks=task_grader,
            )
        )
        self._grader = graders.hidden
        return self

    async def __aexit__(self, *_: object) -> None:
        self._grader = None
        await self._stack.aclose()

    async def grade(
        self, problem: Problem, completion: str, *, bare: bool | None = None
    ) -> Verdict:
        """Judge one completion by its problem's hidden tests.

        A program that crashes, hangs or lies gets a verdict that says so.

        Args:
            bare: override the judge's `bare` for this completion.

        Raises:
            UngradableError: no truthful verdict is possible: `SandboxError` if the sandbox failed
                after retries, `DataError` if the problem has no usable tests, `CheckerError` if its
                checker failed. Never treat one as a score of 0.
            ConfigError: the sandbox does not run the problem's language.
            TypeError: `problem` is not a `Problem`, or `completion` is not text.
        """
        if self._grader is None:
            raise SandboxError("the judge is not started; use it as `async with Judge() as judge`")
        _check_types(problem, completion)
        if self._checked.get(problem.id) is not problem:
            check_problem(problem)
            if self._local and problem.asks_for_code and problem.language != "python":
                named(problem.language)
            self._checked[problem.id] = problem
        bare = self._bare if bare is None else bare
        found = extract_for(problem, completion, bare=bare)
        return await self._grader.grade_code(problem, found.code, extraction=found.label)

    @overload
    async def grade_many(
        self,
        problems: Problem | Sequence[Problem],
        completions: Sequence[str],
        *,
        progress: bool = ...,
        return_errors: Literal[False] = ...,
    ) -> list[Verdict]: ...

    @overload
    async def grade_many(
        self,
        problems: Problem | Sequence[Problem],
        completions: Sequence[str],
        *,
        progress: bool = ...,
        return_errors: Literal[True],
    ) -> list[Verdict | UngradableError]: ...

    async def grade_many(
        self,
        problems: Problem | Sequence[Problem],
        completions: Sequence[str],
        *,
        progress: bool = False,
        return_errors: bool = False,
    ) -> Sequence[Verdict | UngradableError]:
        """Judge completions concurrently.

        Args:
            problems: one per completion, or a single problem for all of them.
            progress: show a progress bar on standard error.
            return_errors: return an `UngradableError` in place of a missing verdict. By default the
                first error is raised after all completions were judged. Verdicts are cached, so a
                second call judges only the missing ones.

        Returns:
            One verdict per completion, in order.

        Raises:
            ValueError: the number of problems differs from the number of completions.
            TypeError: see `grade`; raised before any completion is judged.
            UngradableError: see `grade`.
            ConfigError: see `grade`.
        """
        if isinstance(completions, str):
            raise TypeError("completions: expected a list of texts, got text")
        completions = list(completions)
        given = [problems] * len(completions) if isinstance(problems, Problem) else list(problems)
        if len(given) != len(completions):
            raise ValueError(f"{len(given)} problems for {len(completions)} completions")
        for number, (problem, completion) in enumerate(zip(given, completions, strict=True)):
            _check_types(problem, completion, f"[{number}]")
        groups = [[completion] for completion in completions]
        if progress:
            with progress_bar("judging", len(completions)) as advance:
                judged = await judge_completions(given, groups, self, advance)
        else:
            judged = await judge_completions(given, groups, self)
        outcomes = [group[0] for group in judged]
        errors = [outcome for outcome in outcomes if isinstance(outcome, UngradableError)]
        if errors and not return_errors:
            raise errors[0]
        return outcomes


def judge(problem: Problem, completion: str, *, bare: bool = False) -> Verdict:
    """Judge one completion in the embedded sandbox, and wait for the verdict.

    Works in scripts, in several threads at once, and inside a running event loop, which it blocks (in
    a coroutine prefer `Judge`). The first call starts the sandbox in about half a second. Later calls
    share it, and it stops with the process.

    Args:
        bare: treat the completion as a program without a Markdown fence.

    Raises:
        UngradableError: see `Judge.grade`.
    """
    return _shared.run(lambda judge: judge.grade(problem, completion, bare=bare))


_shared = Background(Judge)


def load(
    name_or_path: str | Path,
    *,
    split: str | None = None,
    data_dir: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    max_tests: int | None = None,
    check: bool = False,
) -> tuple[Problem, ...]:
    """Load problems of a public data set, or of a file.

    Args:
        name_or_path: a name (`coding-model data list` shows them), NAME=PATH for a local copy of a
            public set, or a file of problems in the format of `docs/my-data.md`.
        split: the split to load, such as "train"; by default all. It is also the split of a file whose
            name and rows name none.
        data_dir: the folder searched for local copies before the hub; by default $CODING_DATA_DIR,
            else ./data.
        columns: the column for each field that has another name in a file, such as
            {"statement": "question"}.
        max_tests: keep at most this many hidden tests of each problem, evenly spread.
        check: leave out problems whose tests accept a program that does nothing, or reject the first
            gold solution. Results are cached, so that a problem is judged once on a machine.

    Raises:
        ConfigError: the data set or split is unknown, or was not found.
        CodingModelError: the hub is unreachable.
        DataError: a file is damaged; names file and line.

    Warns:
        UserWarning: rows that cannot be judged, or problems that failed the check, were left out.
    """
    from coding_model_project.data import loaders
    from coding_model_project.data.loaders.files import SUFFIXES

    given = str(name_or_path)
    if max_tests is not None and max_tests < 1:
        raise ConfigError(f"max_tests={max_tests}: must be at least 1")
    if "=" not in given and given.endswith(SUFFIXES) and not Path(given).exists():
        raise ConfigError(f"{given}: no such file")
    name, path = loaders.given_set(given)
    loaded = loaders.load(
        name,
        path=path,
        split=split,
        data_dir=Path(data_dir) if data_dir else None,
        columns=columns,
        max_tests=max_tests,
    )
    if loaded.set_aside:
        first = loaded.set_aside[0]
        warnings.warn(
            f"{name}: left out {len(loaded.set_aside)} rows that cannot be judged; the first: {first}",
            stacklevel=2,
        )
    return _reached(name, loaded.problems) if check else loaded.problems


def _reached(name: str, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the problems whose tests reach the program, and warn of the others."""
    from coding_model_project.data.quality.reach import unreached

    by_id = {problem.id: problem for problem in problems}
    sandbox = Background(lambda: _sandbox("embedded", None, "seccomp", RETRY_S))
    try:
        with progress_bar(f"checking {name}", len(by_id)) as advance:
            faults = sandbox.run(lambda opened: unreached(list(by_id), by_id, opened, advance))
    finally:
        sandbox.close()
    if faults:
        problem_id, (kind, detail) = next(iter(faults.items()))
        warnings.warn(
            f"{name}: left out {len(faults)} problems that failed the check; the first: {problem_id}: "
            f"{kind}: {detail}",
            stacklevel=3,
        )
    return tuple(problem for problem in problems if problem.id not in faults)


def _sandbox(
    given: str | Sequence[str] | Sandbox, workers: int | None, min_tier: str, retry_s: float
) -> Sandbox:
    if given == "embedded":
        from coding_model_project.sandbox.embedded import EmbeddedSandbox

        return EmbeddedSandbox(workers=workers, min_tier=min_tier)
    if not isinstance(given, str | Sequence) and hasattr(given, "run"):
        return given
    urls = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    from coding_model_project.sandbox.fusion import FusionSandbox, members

    if not urls or not all(str(url).startswith(members.PREFIXES) for url in urls):
        raise ConfigError(
            f'sandbox={given!r}: expected "embedded", the URL of a SandboxFusion server, '
            "dns+http://NAME, file:PATH, a list of such, or a Sandbox"
        )

    return FusionSandbox(
        [str(url) for url in urls], max_concurrency=workers or _REQUESTS, retry_s=retry_s
    )


def _check_types(problem: object, completion: object, where: str = "") -> None:
    """Raise if the arguments are not a problem and text.

    Raises:
        TypeError: an argument has another type.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem{where}: expected a cmp.Problem, got {type(problem).__name__}")
    if not isinstance(completion, str):
        kind = type(completion).__name__
        raise TypeError(f"completion{where}: expected the model's text, got {kind}")
