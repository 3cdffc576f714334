"""The plan of an evaluation: problems of its data sets, and a seed for each sample."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders import Loaded, given_set, load
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.dates import Window
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


def load_datasets(
    words: Sequence[str],
    *,
    data_dir: Path | None,
    limit: int | None,
    max_tests: int | None,
    window: Window | None = None,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> tuple[DataSet, ...]:
    """Read data sets.

    Args:
        words: each a name, NAME=PATH or the path of a file.
        limit: number of first problems of each data set in the window and the split.
        max_tests: maximum number of hidden tests per problem.
        window: days of publication of the problems to keep.
        split: the split to load, which is also that of a file that names none; None loads all.
        columns: the column for each field that has another name in a file.

    Raises:
        ConfigError: no data set is named, or one is missing, named twice or empty in the window
            or the split.
        DataError: a file is damaged.
    """
    if not words:
        raise ConfigError("no data sets; pass some, such as humaneval or mbpp_reg")
    found: dict[str, DataSet] = {}
    for word in words:
        name, path = given_set(word)
        if name in found:
            raise ConfigError(f"{name}: named twice; give one another name (NAME=PATH)")
        mapped = columns if path is not None or len(words) == 1 else None
        loaded = load(
            name, path=path, split=split, data_dir=data_dir, columns=mapped, max_tests=max_tests
        )
        found[name] = _chosen(loaded, window or Window(), limit)
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
        notes=loaded.notes,
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
