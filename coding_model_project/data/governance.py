"""Rules for the use of data sets. Data that is not for training never reaches a training file or run.

A data set and a split of it have a role. A name matches a known one if its letters and digits contain it,
so that "openai/openai_humaneval" and "HumanEval-filtered" are HumanEval.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra
from coding_model_project.types import Isolation, Problem


class Role(StrEnum):
    """The permitted use of a split; each one includes those below it."""

    train = "train"
    validation = "validation"
    """For selecting checkpoints and hyper-parameters, and for detecting regressions. Never trained on."""
    test = "test"
    """For final numbers only. Validation rows may be written, for an evaluation during a run."""

    @property
    def may_train(self) -> bool:
        return self is Role.train


TEST_ONLY = frozenset(
    {
        "humaneval",
        "mbpp_plus",
        "bigcodebench",
        "cruxeval",
        "livecodebench",
        "math500",
        "gsm8k_5shot",
        "ifeval",
        "ifbench",
        "codecontests_test",
        "tinycode_test",
        "tinyshell_test",
        "arithmetic_test",
    }
)
"""Data sets by name ("source" or "source_split") for evaluation only, never for training."""

VALIDATION_ONLY = frozenset(
    {
        "mbpp_reg",
        "codecontests_valid",
        "tinycode_validation",
        "tinyshell_validation",
        "arithmetic_validation",
    }
)
"""Data sets by name for selection, neither for training nor for final numbers."""

_SPLIT_WORDS = {"valid": "validation", "val": "validation", "dev": "validation"}
"""Synonyms of splits."""

_WITH_TRAINING_SPLIT = {
    "acecode", "apps", "arithmetic", "big_math", "codecontests", "codecontests_plus", "codeforces",
    "dapo", "deepcoder", "deepscaler", "eurus", "gsm8k", "hardtests", "intellect_3_code",
    "intellect_3_math", "kodcode", "leetcode", "math", "mbpp", "mbpp_sanitized", "nemotron_code",
    "rlvr", "rstar_coder", "skywork_code", "skywork_math", "synthetic_1", "synthetic_2", "taco",
    "tinycode", "tinycode_asserts", "tinyshell",
}  # fmt: skip
"""Known sets of which the split "train" may train, and no other."""

EVALUATION_SETS = (
    "humaneval",
    "mbpp_reg",
    "mbpp_test",
    "mbpp_plus",
    "codecontests_valid",
    "codecontests_test",
    "livecodebench",
    "gsm8k_test",
    "math500",
)
"""Sets that `data dedup` compares a training set with, if they are found. HumanEval+ has HumanEval's
prompts."""


def role(source: str, split: str = "") -> Role:
    """Return the permitted use of a data set's split; unlisted sets may train.

    Args:
        source: the data set's name, as in the first part of `Problem.id`.
    """
    for name in (source, f"{source}_{split}"):
        if _names_one_of(name, TEST_ONLY):
            return Role.test
        if _names_one_of(name, VALIDATION_ONLY):
            return Role.validation
    is_known = source.lower().replace("-", "_") in _WITH_TRAINING_SPLIT
    if not is_known or split.lower() in ("", "train"):
        return Role.train
    return Role.test if split.lower() == "test" else Role.validation


def split_word(split: str) -> str:
    """Return the canonical name of a split: "valid" is "validation"."""
    return _SPLIT_WORDS.get(split.lower(), split.lower())


def is_held_out(source: str, split: str) -> bool:
    """Return whether problems stay out of training rows: by their set's role, or by their split's name.

    Unlike `role`, this holds validation and test splits of unlisted sets out.
    """
    return not role(source, split).may_train or split_word(split) in (Role.validation, Role.test)


def isolation_of(source: str, split: str) -> Isolation:
    """Return the isolation of problems whose publisher runs all inputs of a program in one process.

    It is the publisher's only in test-only data: elsewhere a model could learn to use what one test
    leaves for the next.
    """
    return Isolation.shared if role(source, split) is Role.test else Isolation.per_test


def why_not_shared(problem: Problem) -> str | None:
    """Return why tests of a problem must not share a process, as they do; None if they may, or do not."""
    source, split = problem.id.partition("/")[0], problem.split
    if problem.isolation is Isolation.per_test or is_held_out(source, split):
        return None
    return (
        f'expected "per_test": the split {split!r} of {source} may train, and only problems that are '
        "held out may share a process; remove the field, or use the split 'test'"
    )


def as_rewarded(problem: Problem) -> Problem:
    """Return a problem as rewards judge it: a process per test, whatever its publisher does.

    What one test leaves for the next is nothing that a model should learn to use.
    """
    if problem.isolation is Isolation.per_test:
        return problem
    return replace(problem, isolation=Isolation.per_test)


def is_test_only(name: str) -> bool:
    """Return whether a set must not train, by its name ("HumanEval", "openai_humaneval", "mbpp_reg")."""
    source, _, split = name.rpartition("_")
    return not role(name).may_train or bool(source and not role(source, split).may_train)


def refuse_test_only(path: str | Path) -> None:
    """Raise if a training file's name or rows belong to data that must not train.

    `data_source` and `extra_info.split` identify a row's data set.

    Raises:
        ConfigError: the file must not train; names the file and the data set.
    """
    path = Path(path)
    if is_test_only(path.stem):
        raise ConfigError(f"data.train_files: {path} is test only ({path.stem}) and must not train")
    if path.suffix != ".parquet" or not path.exists():
        return
    with extra("rows"):
        import pyarrow.parquet as pq

    names = set(pq.read_schema(path).names)
    columns = [name for name in ("data_source", "extra_info") if name in names]
    for row in pq.read_table(path, columns=columns).to_pylist():
        source = str(row.get("data_source", ""))
        split = str((row.get("extra_info") or {}).get("split", ""))
        if not role(source, split).may_train:
            raise ConfigError(
                f"data.train_files: {path} holds rows of {source} ({split}), which is test only"
            )


def _names_one_of(name: str, known: frozenset[str]) -> bool:
    plain = "".join(c for c in name.lower() if c.isalnum())
    return any(one.replace("_", "") in plain for one in known)
