"""Rules for the use of data sets. Data that is not for training never reaches a training file or run.

A data set and a split of it have a role. A name matches a known one if its letters and digits contain it,
so that "openai/openai_humaneval" and "HumanEval-filtered" are HumanEval.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

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


@cache
def set_table() -> dict[str, dict[str, Any]]:
    """Return the keys of each public set in `loaders/sets.yaml`; `loaders.sets` explains them."""
    import yaml

    text = (Path(__file__).parent / "loaders" / "sets.yaml").read_bytes()
    return yaml.load(text, Loader=yaml.CSafeLoader)


@cache
def roles() -> dict[str, Role]:
    """Return the role of each known set ("source") or split of one ("source_split").

    A set has the role of its entry in `loaders/sets.yaml`; of a set that trains, only the split "train"
    does.

    Raises:
        ValueError: a set there has no role.
    """
    known = dict(_OTHERS)
    for name, keys in set_table().items():
        if (given := keys.get("role")) not in list(Role):
            raise ValueError(f"sets.yaml: {name}: role: {given}: expected {', '.join(Role)}")
        known[keys.get("source", name)] = Role(given)
    return known


_OTHERS = {
    "arithmetic": Role.train,
    "tinyshell": Role.train,
    "cruxeval": Role.test,
    "codecontests_valid": Role.validation,
    **{f"{one}_validation": Role.validation for one in ("tinycode", "tinyshell", "arithmetic")},
    **{f"{one}_test": Role.test for one in ("codecontests", "tinycode", "tinyshell", "arithmetic")},
}
"""Sets without an entry there, and further names of splits, which the names of files contain."""

_SPLIT_WORDS = {
    **dict.fromkeys(("valid", "val", "dev", "eval", "evaluation"), "validation"),
    **dict.fromkeys(("holdout", "heldout", "held_out"), "test"),
}
"""Synonyms of splits."""

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
        plain = "".join(c for c in name.lower() if c.isalnum())
        for held_out in (Role.test, Role.validation):
            if any(one in plain for one in _names_of(held_out)):
                return held_out
    is_known = source.lower().replace("-", "_") in roles()
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


@cache
def _names_of(role: Role) -> tuple[str, ...]:
    return tuple(name.replace("_", "") for name, its in roles().items() if its is role)
