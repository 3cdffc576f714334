"""A reward function for your own verl recipes, with verl's trainer and reward manager:

    reward.custom_reward_function.path=pkg://coding_model_project.integrations.verl
    +reward.custom_reward_function.reward_kwargs.problems=/data/problems.jsonl

Imports verl only for rows that its own scorers judge. `docs/verl-reward.md` has examples. This package's
own recipes do not use it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from coding_model_project.api import Judge
from coding_model_project.concurrency import Background
from coding_model_project.data.loaders.base import Unusable
from coding_model_project.data.loaders.cases import Hints, truth_of
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.prelude import contest_prelude
from coding_model_project.grading.rewards import reward_function
from coding_model_project.integrations.given_problems import for_rewards, named
from coding_model_project.types import ERROR_GROUPS, ErrorType, GradedBy, Limits, Problem
from coding_model_project.verl_ext.rewards.own_scorers import PROGRAMS, score_by_verl

_LIMITS = Limits(cpu_s=10.0, wall_s=30.0, output_kb=16_384)
"""Limits of each test in a row: the same time as verl's own scorers give a program."""

_OF_VERL = {"reward_router_address", "reward_model_tokenizer"}
"""Keys that verl adds to `reward_kwargs` if a recipe also has a reward model."""


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
    *,
    problems: str | None = None,
    fallback: str = "verl",
    kind: str = "dense",
    bare: bool = False,
    workers: int | None = None,
    sandbox: str | Sequence[str] = "embedded",
    min_tier: str = "seccomp",
    **more: Any,
) -> dict[str, float]:
    """Judge one completion, and wait for the verdict. verl calls it from several threads at once.

    Each of verl's processes (`reward.num_workers`) loads the problems once. Its sandbox starts with the
    first call and stops with the process.

    Args:
        data_source: the name of the row's data set. The judge of each is printed once.
        ground_truth: the id of a problem in `problems`, or else what judges a completion, as JSON or
            decoded. Its form selects the judge: tests ({"inputs": [...], "outputs": [...], "fn_name":
            optional}, {"assert_case": [...]}, a list of {"input", "output"}), the final answer of a maths
            problem, or instructions ({"instruction_id", "kwargs"}).
        problems: a file of problems or the name of a data set, for `cmp.load`.
        fallback: the judge of other ground truths: "verl" for verl's own scorer of the `data_source`, or
            "raise" for an error.
        kind: "dense", the share of tests passed; "sparse", 1 if all passed, else 0; or
            "package.module:function" (`rewards.reward_function`).
        bare: completions are programs without a Markdown fence.
        workers: programs judged at the same time in each such process; by default one per CPU core.
        sandbox: see `cmp.Judge`.
        min_tier: see `cmp.Judge`.

    Returns:
        `score`, and the numbers for validation: `acc` (accepted), `pass_fraction`, `judge_s` and the
        groups of errors. The keys are always the same.

    Raises:
        ConfigError: an argument is invalid, or no problem has this id.
        DataError: nothing judges this ground truth.
        UngradableError: the completion could not be judged. verl drops the sample; it never gets a score.
    """
    if unknown := more.keys() - _OF_VERL:
        raise ConfigError(
            f"reward_kwargs.{min(unknown)}: no such argument; expected problems, fallback, kind, bare, "
            "workers, sandbox or min_tier"
        )
    reward_of = reward_function(kind, "reward_kwargs.kind")
    if fallback not in ("verl", "raise"):
        raise ConfigError(f"reward_kwargs.fallback={fallback!r}: expected verl or raise")
    if problems is not None:
        with _once:
            loaded = _load(str(problems))
        problem = named(loaded, ground_truth, "ground_truth")
    else:
        found = _problem_of(_as_text(ground_truth), str(data_source))
        if isinstance(found, DataError):
            return _of_verl(data_source, solution_str, ground_truth, extra_info, fallback, found)
        problem = found
    _say(data_source, _JUDGES.get(problem.graded_by, f"{problem.graded_by} of this package"))
    services = sandbox if isinstance(sandbox, str) else tuple(sandbox)
    with _once:
        judge = _start(workers, services, bare, kind == "sparse", min_tier)
    verdict = judge.run(lambda started: started.grade(problem, solution_str))
    group = verdict.error.group if verdict.error is not None else None
    reward = reward_of(problem, verdict).total
    return _row(reward, verdict.passed, verdict.pass_fraction, verdict.judge_s, group)


def _row(
    score: float, passed: bool, fraction: float, judge_s: float, group: ErrorType | None
) -> dict[str, float]:
    groups = {str(one): float(one is group) for one in ERROR_GROUPS}
    numbers = {"score": score, "acc": float(passed), "pass_fraction": fraction, "judge_s": judge_s}
    return {**numbers, **groups}


def _of_verl(
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, Any] | None,
    fallback: str,
    unusable: DataError,
) -> dict[str, float]:
    """Return the score of verl's own scorer, in this function's form.

    Raises:
        DataError: the fallback is "raise", the source is one of code, or verl has no scorer for it.
    """
    if fallback == "raise" or data_source in PROGRAMS:
        raise unusable
    started = time.monotonic()
    try:
        found = score_by_verl(data_source, solution_str, ground_truth, extra_info)
    except ImportError as error:
        raise DataError(f"{unusable}; verl, whose scorer is the fallback, is missing") from error
    except NotImplementedError:
        raise DataError(
            f"data_source={data_source!r}: {unusable}; verl has no scorer for it"
        ) from None
    _say(data_source, "verl's own scorer")
    score = float(found["score"] if isinstance(found, Mapping) else found)
    passed = bool(found.get("acc", score >= 1)) if isinstance(found, Mapping) else score >= 1
    wrong = None if passed else ErrorType.wrong_answer
    fraction = min(1.0, max(0.0, score))
    return _row(score, passed, fraction, time.monotonic() - started, wrong)


_JUDGES = {
    GradedBy.tests: "tests, run by this package",
    GradedBy.math: "the final answer, compared by this package",
    GradedBy.instructions: "instructions, checked by this package",
}
_said: set[tuple[str, str]] = set()


def _say(data_source: str, judge: str) -> None:
    """Print once which judge a data source has."""
    if (data_source, judge) not in _said:
        _said.add((data_source, judge))
        said = f"compute_score: data_source={data_source}: {judge}"
        print(said, file=sys.stderr, flush=True)  # noqa: T201 - for the reader of the run


# ── once per process ──────────────────────────────────────────────────────────────────────────────

_once = threading.Lock()
"""A lock, because `cache` alone may compute a value twice in concurrent threads."""


_load = cache(for_rewards)


@cache
def _start(
    workers: int | None,
    sandbox: str | tuple[str, ...],
    bare: bool,
    stop_early: bool,
    min_tier: str,
) -> Background[Judge]:
    def make() -> Judge:
        return Judge(
            workers=workers, sandbox=sandbox, bare=bare, stop_early=stop_early, min_tier=min_tier
        )

    make()  # rejects invalid arguments
    return Background(make)


# ── ground truths in rows ───────────────────────────────────────────────────────────────────────


def tests_in(ground_truth: object) -> Problem:
    """Return a problem with the tests that a row's ground truth holds.

    Raises:
        DataError: it holds none, or they cannot be read.
    """
    found = _problem_of(_as_text(ground_truth), "")
    if isinstance(found, DataError):
        raise found.with_traceback(None)
    if not found.tests:
        raise DataError(f"ground_truth={str(ground_truth)[:60]!r}: holds no tests of programs")
    return found


def _as_text(ground_truth: object) -> str:
    if isinstance(ground_truth, str):
        return ground_truth
    try:
        return json.dumps(ground_truth, default=_plain)
    except (TypeError, ValueError) as error:
        raise DataError(f"ground_truth: neither JSON nor convertible to JSON: {error}") from error


def _plain(value: object) -> object:
    """Convert an array, as pandas reads lists, to a list."""
    if tolist := getattr(value, "tolist", None):
        return tolist()
    raise TypeError(f"a value of type {type(value).__name__}")


_ID = re.compile(r"[A-Za-z][\w.+-]{3,}/\S+")
"""The form of a problem's id, which no final answer has."""


@lru_cache(maxsize=10_000)
def _problem_of(text: str, data_source: str) -> Problem | DataError:
    """Make a problem from a ground truth, by its form; or return why it is none.

    Equal texts give the same problem, so verdicts are cached.
    """
    name = f"verl/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
    if text.startswith(f"{data_source}/") or _ID.fullmatch(text):
        return DataError(
            f"ground_truth={text[:60]!r}: looks like the id of a problem: set "
            "+reward.custom_reward_function.reward_kwargs.problems"
        )
    try:
        truth = truth_of(text, Hints(field="ground_truth"))
    except Unusable as error:
        return DataError(f"ground_truth={text[:60]!r}: {error}")
    language = truth.language or ("python" if truth.tests else "text")
    return Problem(
        id=name,
        split="train",
        statement="",
        tests=truth.tests,
        answer=truth.answer,
        instructions=truth.instructions,
        comparison=truth.comparison or "tokens",
        language=language,
        entry_point=truth.function,
        prelude=contest_prelude(truth.tests) if language == "python" else "",
        limits=_LIMITS,
    )
