"""The plan of an evaluation: its data sets' problems in a window of days, and a seed for each sample."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Self

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders import Loaded, given_set, load
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.protocols import data_version
from coding_model_project.evaluation.results import Key
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set and the problems of it that are evaluated."""

    name: str
    problems: tuple[Problem, ...]
    version: str
    """`protocols.data_version` of the problems."""
    origin: str
    n_set_aside: int
    """Number of unusable rows."""
    notes: tuple[str, ...]

    def splits(self) -> str:
        """Return the problems' splits, with the number of each if there are several."""
        counts = Counter(split_word(problem.split) for problem in self.problems)
        if len(counts) == 1:
            return f"split {next(iter(counts))}"
        return f"splits {', '.join(f'{split} {n}' for split, n in counts.items())}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion to generate and judge."""

    dataset: str
    problem: Problem
    number: int
    seed: int

    @property
    def key(self) -> Key:
        return self.dataset, self.problem.id, self.number


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `of`-th problem, starting at the `number`-th."""

    number: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """Parse a shard such as "0/4"; None is the whole.

        Raises:
            ConfigError: the text is not a shard.
        """
        if text is None:
            return cls()
        number, _, of = text.partition("/")
        if not (number.isdigit() and of.isdigit() and int(number) < int(of)):
            raise ConfigError(
                f"shard={text}: expected NUMBER/OF, from 0/4 (the first of four) to 3/4"
            )
        return cls(int(number), int(of))


def load_datasets(config: EvaluationConfig) -> tuple[DataSet, ...]:
    """Read the data sets of an evaluation, as its keys select their problems.

    Raises:
        ConfigError: no data set is named, or one is missing, named twice or empty in the window
            or the split.
        DataError: a file is damaged.
    """
    if not config.datasets:
        raise ConfigError("no data sets; pass some, such as humaneval or mbpp_reg")
    window = Window.parse(config.from_date, config.to_date)
    found: dict[str, DataSet] = {}
    for word in config.datasets:
        name, path = given_set(word)
        if name in found:
            raise ConfigError(f"{name}: named twice; give one another name (NAME=PATH)")
        loaded = load(
            name,
            path=path,
            split=config.split,
            data_dir=Path(config.data_dir) if config.data_dir else None,
            columns=config.columns if path is not None or len(config.datasets) == 1 else None,
            max_tests=config.max_tests,
        )
        found[name] = _chosen(loaded, window, config.limit)
    return tuple(found.values())


def _chosen(loaded: Loaded, window: Window, limit: int | None) -> DataSet:
    name = loaded.name
    problems = window.cut(loaded.problems, name)[:limit]
    if not problems:
        reason = f": {loaded.set_aside[0].reason}" if loaded.set_aside else ""
        raise ConfigError(f"{name}: no usable problems ({loaded.origin}){reason}")
    ids: set[str] = set()
    for problem in problems:
        if problem.id in ids:
            raise ConfigError(f"{name}: duplicate problem {problem.id} ({loaded.origin})")
        ids.add(problem.id)
    return DataSet(
        name=name,
        problems=problems,
        version=data_version(problems),
        origin=loaded.origin,
        n_set_aside=len(loaded.set_aside),
        notes=(*filter(None, [loaded.aside()]), *loaded.notes),
    )


def samples(datasets: Sequence[DataSet], *, n: int, seed: int, shard: Shard) -> Iterator[Sample]:
    """Yield the samples of a shard, ordered by data set, problem and sample number."""
    problems = ((data, problem) for data in datasets for problem in data.problems)
    for place, (data, problem) in enumerate(problems):
        if place % shard.of == shard.number:
            for number in range(n):
                key = data.name, problem.id, number
                yield Sample(data.name, problem, number, sample_seed(seed, key))


def sample_seed(seed: int, key: Key) -> int:
    """Return a sample's seed in [0, 2³¹), which depends only on the evaluation's seed and the key."""
    text = "\0".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


# ── days of publication ───────────────────────────────────────────────────────────────────────────


def day(text: str | None, key: str) -> str | None:
    """Check a day such as "2024-08-01".

    Raises:
        ConfigError: the text is not a day; names the key.
    """
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ConfigError(
            f"coding.evaluation.{key}={text}: expected a day such as 2024-08-01"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The days from `first` to `last`, both inclusive; None is unbounded."""

    first: str | None = None
    last: str | None = None

    @classmethod
    def parse(cls, first: str | None, last: str | None) -> Self:
        """Create a window from two days.

        Raises:
            ConfigError: a text is not a day, or the last day is before the first.
        """
        window = cls(first=day(first, "from_date"), last=day(last, "to_date"))
        if window.first and window.last and window.last < window.first:
            raise ConfigError(
                f"coding.evaluation.to_date={last}: must not be before from_date={first} (--from, --to)"
            )
        return window

    def cut(self, problems: Sequence[Problem], name: str) -> tuple[Problem, ...]:
        """Return the problems published in the window.

        Raises:
            ConfigError: a problem has no date, or no problem is left; names the data set.
        """
        if self.first is None and self.last is None:
            return tuple(problems)
        days = sorted(problem.date for problem in problems if problem.date is not None)
        if len(days) < len(problems):
            raise ConfigError(
                f"{name}: {len(problems) - len(days)} of {len(problems)} problems have no date, so "
                "--from and --to cannot be used; livecodebench has dates"
            )
        low, high = self.first or days[0], self.last or days[-1]
        kept = tuple(one for one in problems if one.date is not None and low <= one.date <= high)
        if not kept:
            ends = (("--from", self.first), ("--to", self.last))
            given = " ".join(f"{option} {end}" for option, end in ends if end)
            raise ConfigError(
                f"{name}: no problems within {given}; its problems are from {days[0]} to {days[-1]}"
            )
        return kept
