"""A reward function for your own verl recipes, with verl's trainer and reward manager:

    reward.custom_reward_function.path=pkg://coding_model_project.integrations.verl
    +reward.custom_reward_function.reward_kwargs.problems=/data/problems.jsonl

Does not import verl. `docs/verl-reward.md` has examples. This package's own recipes do not use it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, TypeGuard

from coding_model_project import strict_json
from coding_model_project.api import Judge
from coding_model_project.background import Background
from coding_model_project.data.loaders.base import Unusable
from coding_model_project.data.loaders.cases import columns, lines_call
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.rewards import REWARDS
from coding_model_project.integrations.given_problems import by_id, named
from coding_model_project.types import ERROR_GROUPS, Asserts, Limits, Problem, Test

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
        ground_truth: the id of a problem in `problems`, or else tests in the form of verl's own scorers,
            as JSON or decoded: {"inputs": [...], "outputs": [...], "fn_name": optional} or
            {"assert_case": [...]}.
        problems: a file of problems or the name of a data set, for `cmp.load`.
        kind: "dense", the share of tests passed, or "sparse", 1 if all passed, else 0.
        bare: completions are programs without a Markdown fence.
        workers: programs judged at the same time in each such process; by default one per CPU core.
        sandbox: see `cmp.Judge`.
        min_tier: see `cmp.Judge`.

    Returns:
        `score`, and the numbers for validation: `acc` (accepted), `pass_fraction`, `judge_s` and the
        groups of errors. The keys are always the same.

    Raises:
        ConfigError: an argument is invalid, or no problem has this id.
        UngradableError: the completion could not be judged. verl drops the sample; it never gets a score.
    """
    if unknown := more.keys() - _OF_VERL:
        raise ConfigError(
            f"reward_kwargs.{min(unknown)}: no such argument; expected problems, kind, bare, workers, "
            "sandbox or min_tier"
        )
    if kind not in REWARDS:
        raise ConfigError(f"reward_kwargs.kind={kind!r}: expected one of {', '.join(REWARDS)}")
    problem = (
        tests_in(ground_truth)
        if problems is None
        else named(_loaded(str(problems)), ground_truth, "ground_truth")
    )
    services = sandbox if isinstance(sandbox, str) else tuple(sandbox)
    judge = _judge(workers, services, bare, kind == "sparse", min_tier)
    verdict = judge.run(lambda started: started.grade(problem, solution_str))
    error = verdict.error
    return {
        "score": REWARDS[kind](problem, verdict).total,
        "acc": float(verdict.passed),
        "pass_fraction": verdict.pass_fraction,
        "judge_s": verdict.judge_s,
        **{str(group): float(error is not None and error.group is group) for group in ERROR_GROUPS},
    }


# ── once per process ──────────────────────────────────────────────────────────────────────────────

_once = threading.Lock()
"""A lock, because `cache` alone may compute a value twice in concurrent threads."""


def _loaded(problems: str) -> dict[str, Problem]:
    with _once:
        return _load(problems)


def _judge(
    workers: int | None,
    sandbox: str | tuple[str, ...],
    bare: bool,
    stop_early: bool,
    min_tier: str,
) -> Background[Judge]:
    with _once:
        return _start(workers, sandbox, bare, stop_early, min_tier)


_load = cache(by_id)


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


# ── tests that are kept in a row ──────────────────────────────────────────────────────────────────


def tests_in(ground_truth: object) -> Problem:
    """Return a problem with the tests that a row's ground truth holds.

    Raises:
        DataError: it holds none, or they cannot be read.
    """
    return _tests_of(_as_text(ground_truth))


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


@lru_cache(maxsize=10_000)
def _tests_of(text: str) -> Problem:
    """Make a problem from tests in verl's form. Equal texts give the same one, so verdicts are cached."""
    name = f"verl/{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
    try:
        given = strict_json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise DataError(
            f'ground_truth={text[:60]!r}: expected tests as JSON ({{"inputs": [...], "outputs": '
            "[...]}); if it is a problem's id, set +reward.custom_reward_function.reward_kwargs.problems"
        )
    try:
        tests = _asserts(given) if given.get("assert_case") else _cases(given)
    except Unusable as error:
        raise DataError(f"ground_truth: {error}") from error
    return Problem(id=name, split="train", statement="", tests=tests, limits=_LIMITS)


def _asserts(given: Mapping[str, Any]) -> tuple[Test, ...]:
    cases = given["assert_case"]
    if not isinstance(cases, list) or not all(isinstance(case, str) for case in cases):
        raise Unusable("'assert_case' is not a list of texts")
    if any(given.get("inputs") or ()) or any(given.get("outputs") or ()):
        raise Unusable("'assert_case' comes beside inputs or outputs")
    name = given.get("fn_name")
    return tuple(Test(input=Asserts(source=f"{case}\n", entry_point=name)) for case in cases)


def _cases(given: Mapping[str, Any]) -> tuple[Test, ...]:
    inputs, outputs, name = given.get("inputs"), given.get("outputs"), given.get("fn_name")
    if not name or not _texts(inputs) or not _texts(outputs) or len(inputs) != len(outputs):
        return columns(given)
    return tuple(lines_call(name, i, o) for i, o in zip(inputs, outputs, strict=True))


def _texts(values: Any) -> TypeGuard[list[str]]:
    """Return whether these are JSON texts of a call's arguments (one per line) or values."""
    return isinstance(values, list) and all(isinstance(one, str) for one in values)
