"""The work of an evaluation: the problems of the data sets, and a seed for every sample of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.loaders import Loaded, given_set, load
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.dates import Window
from coding_model_project.evaluation.protocols import data_version
from coding_model_project.evaluation.results import Key
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set as it is evaluated."""

    name: str
    problems: tuple[Problem, ...]
    version: str
    """`protocols.data_version` of the problems."""
    origin: str
    n_set_aside: int
    """Rows that cannot be used."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion that is to be generated and judged."""

    dataset: str
    problem: Problem
    number: int
    seed: int

    @property
    def key(self) -> Key:
        return self.dataset, self.problem.id, self.number


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `of`-th problem, from the `number`-th on."""

    number: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """A shard as given, such as "0/4"; None is all of it.

        Raises:
            ConfigError: it is no shard.
        """
        if text is None:
            return cls()
        number, _, of = text.partition("/")
        if not (number.isdigit() and of.isdigit() and int(number) < int(of)):
            raise ConfigError(f"shard={text}: not like 0/4, the first of four (the last is 3/4)")
        return cls(int(number), int(of))


def load_datasets(
    words: Sequence[str],
    *,
    data_dir: Path | None,
    limit: int | None,
    max_tests: int | None,
    window: Window | None = None,
) -> tuple[DataSet, ...]:
    """Read data sets.

    Args:
        words: each a name, NAME=PATH or the path of a file.
        limit: only the first problems of each, in the window.
        max_tests: at most so many hidden tests of each problem.
        window: only problems published in it.

    Raises:
        ConfigError: none is named, one is not to be found, twice there, or has nothing in the window.
        DataError: a file is damaged.
    """
    if not words:
        raise ConfigError("no data sets: name some, such as humaneval or mbpp_reg")
    found: dict[str, DataSet] = {}
    for word in words:
        name, path = given_set(word)
        if name in found:
            raise ConfigError(f"{name}: named twice; a path may have another name (NAME=PATH)")
        loaded = load(name, path=path, data_dir=data_dir, max_tests=max_tests)
        found[name] = _chosen(loaded, window or Window(), limit)
    return tuple(found.values())


def _chosen(loaded: Loaded, window: Window, limit: int | None) -> DataSet:
    name = loaded.name
    problems = window.cut(loaded.problems, name)[:limit]
    if not problems:
        reason = f": {loaded.set_aside[0].reason}" if loaded.set_aside else ""
        raise ConfigError(f"{name}: no problem can be used ({loaded.origin}){reason}")
    ids: set[str] = set()
    for problem in problems:
        if problem.id in ids:
            raise ConfigError(f"{name}: the problem {problem.id} is there twice ({loaded.origin})")
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
    """Every sample of a shard: data sets, their problems and each problem's samples in order."""
    problems = ((data, problem) for data in datasets for problem in data.problems)
    for place, (data, problem) in enumerate(problems):
        if place % shard.of == shard.number:
            for number in range(n):
                key = data.name, problem.id, number
                yield Sample(data.name, problem, number, sample_seed(seed, key))


def sample_seed(seed: int, key: Key) -> int:
    """A sample's own seed, in [0, 2³¹): the same wherever, whenever and beside whatever it is drawn."""
    text = "\0".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1
