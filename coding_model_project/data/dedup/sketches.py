"""Pairs of similar sets by MinHash and locality-sensitive hashing, in time linear in the sets' sizes.

A band is a key of several minima over a set's hashed members. Two sets have the same minimum with a
probability equal to their (weighted) Jaccard similarity, so similar sets share the key of some band. The
pairs are candidates: compute their similarity exactly.

This is not datasketch, which makes a Python object for each set, and whose weighted sketches, which the
words need, take an array of all words for each set.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coding_model_project.control_groups import usable_cores

MAX_GROUP = 50
"""Maximum size of a group of equal keys of which all pairs are taken."""

_CHUNK = 20_000
"""Number of sets hashed at once."""


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of 32-bit numbers, one after another in one array."""

    values: NDArray[np.uint32]
    starts: NDArray[np.int64]
    """The start of each set, and the end of the last one."""

    @classmethod
    def of(cls, parts: Iterable[np.ndarray], capacity: int) -> Sets:
        """Copy sets into one array of at most `capacity` numbers."""
        values = np.empty(capacity, np.uint32)
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + len(part))
            values[starts[-2] : starts[-1]] = part
        return cls(values[: starts[-1]], np.array(starts, np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> NDArray[np.uint32]:
        return self.values[self.starts[index] : self.starts[index + 1]]

    def keep(self, wanted: NDArray[np.bool_]) -> Sets:
        """Return the sets with only the wanted of all values."""
        before = np.concatenate([[0], np.cumsum(wanted)])
        return Sets(self.values[wanted], before[self.starts])

    def jaccard(self, a: int, b: int) -> float:
        """Return the similarity of two sets whose values are sorted."""
        shared = len(np.intersect1d(self[a], self[b], assume_unique=True))
        return shared / max(1, len(self[a]) + len(self[b]) - shared)


def candidates(
    sets: Sets,
    *,
    bands: int,
    rows: int,
    first: NDArray[np.bool_],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.int64]:
    """Return pairs of sets (a < b) that share a band, each pair once.

    Args:
        rows: the number of minima of a band: more miss similar pairs, and fewer take more others.
        first: sets that represent a large group of equal ones if there are any.
        weights: the weight of each value, for values 0, 1, …; by default all are equal and hashed.
    """
    filled = np.flatnonzero(np.diff(sets.starts))
    if not len(filled):
        return np.empty((0, 2), np.int64)

    def band(seed: int) -> NDArray[np.int64]:
        random = np.random.default_rng(seed)
        keys = np.zeros(len(filled), np.uint64)
        for _ in range(rows):
            keys = keys * np.uint64(0x9E3779B97F4A7C15) + _minima(sets, filled, weights, random)
        a, b = equal_pairs(keys, MAX_GROUP, first[filled])
        a, b = filled[a], filled[b]
        return np.minimum(a, b) * len(sets) + np.maximum(a, b)

    found = np.empty(0, np.int64)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for codes in pool.map(band, range(bands)):
            found = np.union1d(found, codes)
    return np.stack(np.divmod(found, len(sets)), axis=1)


def _minima(
    sets: Sets,
    filled: NDArray[np.int64],
    weights: NDArray[np.float32] | None,
    random: np.random.Generator,
) -> NDArray[np.uint32]:
    """Return the smallest of each set's values under one random order.

    With weights, a value's place is exponential with that rate, so that it is the smallest in proportion
    to its weight.
    """
    factor, offset = random.integers(1 << 32, size=2, dtype=np.uint32)
    factor |= np.uint32(1)
    table = None
    if weights is not None:
        # Bits of positive floats are ordered as the floats are.
        table = (random.standard_exponential(len(weights), np.float32) / weights).view(np.uint32)
    found = []
    for chunk in np.split(filled, range(_CHUNK, len(filled), _CHUNK)):
        begin, end = sets.starts[chunk[0]], sets.starts[chunk[-1] + 1]
        values = sets.values[begin:end]
        places = values * factor + offset if table is None else table[values]
        found.append(np.minimum.reduceat(places, sets.starts[chunk] - begin))
    return np.concatenate(found)


def equal_pairs(
    keys: NDArray[np.uint64], max_group: int, first: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of pairs of equal keys.

    Args:
        max_group: the maximum size of a group of equal keys of which all pairs are returned.
        first: the keys to represent a larger group if it has any of them, else its first key does, to
            which each other one is then paired; None returns no pairs of larger groups.
    """
    order = np.argsort(keys, kind="stable") if first is None else np.lexsort((~first, keys))
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    sizes = np.diff(np.append(starts, len(keys)))
    place = np.arange(len(keys)) - np.repeat(starts, sizes)
    large = np.repeat(sizes > max_group, sizes)
    rest = np.flatnonzero(large & (place > 0)) if first is not None else place[:0]
    pairs = [(rest - place[rest], rest)]
    later = np.flatnonzero(~large & (place > 0))
    for distance in range(1, max_group):
        later = later[place[later] >= distance]
        pairs.append((later - distance, later))
    a, b = (order[np.concatenate(side)] for side in zip(*pairs, strict=True))
    return a, b


def places(values: np.ndarray, known: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return each value's place among sorted `known` ones, and whether it is one of these."""
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return at, known[at] == values
