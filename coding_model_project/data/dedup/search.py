"""Search for pairs of documents that are the same problem, by seven signals.

exact       equal statements
normalised  statements that are equal except for case, signs and blanks
near        skeletons that share most word triples
paraphrase  a high cosine over the rarer words, weighted by rarity
tests       at least three shared test cases, and half of those of the document with fewer
code        gold solutions that are equal except for names
ngrams      half of an evaluation statement's runs of eight words in one training statement

The candidates for near and paraphrase come from `sketches`, in time linear in the number of documents.
Their similarity is then computed exactly, so a sketch can miss a pair but not invent one.

Completely reworded texts are found only by their tests or code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_model_project.data.dedup.documents import Document, Hashes, Words, hashed_64
from coding_model_project.data.dedup.sketches import (
    MAX_GROUP,
    Sets,
    candidates,
    equal_pairs,
    places,
)
from coding_model_project.extras import extra

NEAR, NEAR_SHORT = 0.6, 0.8
PARAPHRASE, PARAPHRASE_SHORT = 0.65, 0.9
PARAPHRASE_WITH_TRIPLES, SHARED_TRIPLES = 0.45, 0.3
"""The lower threshold of the cosine if at least that share of word triples is common too, as in sentences
with some words replaced."""

SHORT_WORDS = 30
"""Number of words below which a statement is short. If one of two statements is short, the thresholds are
higher, since a single word makes another problem ("square", "pentagon")."""

SHINGLE_WORDS = 3
NEAR_BANDS, NEAR_ROWS = 100, 3
"""The sketch of triples: takes all pairs at `NEAR`, 94% at `SHARED_TRIPLES`, and 1% at 0.05."""
WORD_BANDS, WORD_ROWS = 100, 4
"""The sketch of words: takes 99.6% of pairs with a cosine of `PARAPHRASE`, and 0.01% at 0.1."""

MIN_SHARED_CASES = 3
MIN_SHARED_SHARE = 0.5
MAX_CASE_DOCUMENTS = 20
"""Maximum number of documents with a test case; beyond it, the case is trivial ("1" → "1")."""

MAX_WORD_SHARE = 0.1
"""Maximum share of documents with a word; beyond it, the paraphrase signal ignores the word."""

MAX_SHINGLE_DOCUMENTS, MAX_SHINGLE_SHARE = 20, 0.005
"""Maximum number and share of documents with a run; beyond both, the near signal ignores the run."""

RUN_WORDS, MIN_RUNS, MIN_RUN_SHARE = 8, 4, 0.5
"""Length of the n-grams, and minimum number and share of common ones; fewer may be chance."""
MAX_RUN_DOCUMENTS = 10
"""Maximum number of training or evaluation documents with a run; beyond it, the run is boilerplate ("the
first line contains a single integer")."""

MIN_WORDS = 8
"""Minimum number of words of a statement; shorter ones share words by chance."""

_PAIRS = 50_000
"""Number of pairs of which the cosine is computed at once."""
_BUCKETS = 1 << 22


class Kind(StrEnum):
    """The signal that two documents are the same problem, strongest first."""

    exact = "exact"
    normalised = "normalised"
    near = "near"
    tests = "tests"
    code = "code"
    paraphrase = "paraphrase"
    ngrams = "ngrams"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two documents, by their positions (a < b)."""

    a: int
    b: int
    kind: Kind
    score: float = 1.0


Say = Callable[[str], None]


def matches(documents: Sequence[Document], say: Say = lambda _: None) -> list[Match]:
    """Return all pairs, each with its strongest kind."""
    best: dict[tuple[int, int], Match] = {}
    order = list(Kind)
    for name, search in _SEARCHES.items():
        say(f"searching {len(documents)} documents by {name}")
        for match in search(documents):
            known = best.get((match.a, match.b))
            if known is None or order.index(match.kind) < order.index(known.kind):
                best[match.a, match.b] = match
    return sorted(best.values(), key=lambda one: (one.kind is Kind.ngrams, one.a, one.b))


def _equal(
    documents: Sequence[Document], kind: Kind, key: Callable[[Document], bytes]
) -> Iterator[Match]:
    """Yield all pairs of equal documents; in very large groups, pairs with one representative only.

    An evaluation problem represents its group if there is one, since its repeats must be found.
    """
    keys = [key(document) for document in documents]
    filled = np.array([index for index, one in enumerate(keys) if one], np.int64)
    hashes = np.array([hashed_64(keys[index]) for index in filled], np.uint64)
    first = np.array([not documents[index].role.may_train for index in filled], np.bool_)
    for a, b in zip(*equal_pairs(hashes, MAX_GROUP, first), strict=True):
        i, j = sorted((int(filled[a]), int(filled[b])))
        yield Match(a=i, b=j, kind=kind)


def similar(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield near documents, which share word triples, and paraphrases, which share rare words."""
    first = np.array([not document.role.may_train for document in documents])
    triples = _without_boilerplate(
        Sets.of(map(shingles, documents), sum(len(one.words) for one in documents))
    )
    pairs = [candidates(triples, bands=NEAR_BANDS, rows=NEAR_ROWS, first=first)]
    matrix = None
    if (words := _words(documents)) is not None:
        sets, weights, matrix = words
        sketch = {"bands": WORD_BANDS, "rows": WORD_ROWS, "first": first}
        pairs.append(candidates(sets, weights=weights, **sketch))
    both = np.unique(np.concatenate(pairs), axis=0)
    for chunk in np.split(both, range(_PAIRS, len(both), _PAIRS)):
        cosines = (
            np.zeros(len(chunk))
            if matrix is None
            else np.asarray(matrix[chunk[:, 0]].multiply(matrix[chunk[:, 1]]).sum(axis=1)).ravel()
        )
        for (a, b), cosine in zip(chunk.tolist(), cosines.tolist(), strict=True):
            if (match := _judged(documents, triples, a, b, cosine)) is not None:
                yield match


def _judged(
    documents: Sequence[Document], triples: Sets, a: int, b: int, cosine: float
) -> Match | None:
    is_short = min(len(documents[a].words), len(documents[b].words)) < SHORT_WORDS
    shared = triples.jaccard(a, b)
    if shared >= (NEAR_SHORT if is_short else NEAR):
        return Match(a=a, b=b, kind=Kind.near, score=round(shared, 3))
    with_triples = not is_short and shared >= SHARED_TRIPLES
    least = PARAPHRASE_WITH_TRIPLES if with_triples else PARAPHRASE
    if cosine >= (PARAPHRASE_SHORT if is_short else least):
        return Match(a=a, b=b, kind=Kind.paraphrase, score=round(cosine, 3))
    return None


def _without_boilerplate(sets: Sets) -> Sets:
    """Remove shingles of many documents, which share sentences but not problems."""
    limit = max(MAX_SHINGLE_DOCUMENTS, MAX_SHINGLE_SHARE * len(sets))
    # Buckets of shingles first, since counting all shingles of a large set would take much memory.
    sizes = np.zeros(_BUCKETS, np.int64)
    parts = np.array_split(sets.values, max(1, len(sets.values) // _BUCKETS))
    for part in parts:
        sizes += np.bincount(part % _BUCKETS, minlength=_BUCKETS)
    frequent = np.concatenate([part[sizes[part % _BUCKETS] > limit] for part in parts])
    hashes, counts = np.unique(frequent, return_counts=True)
    common = hashes[counts > limit]
    if not len(common):
        return sets
    return sets.keep(np.concatenate([~places(part, common)[1] for part in parts]))


def shingles(document: Document, n: int = SHINGLE_WORDS) -> NDArray[np.uint32]:
    """Return hashes of all runs of `n` words of the skeleton; none for the shortest statements."""
    if len(document.words) < MIN_WORDS:
        return np.empty(0, np.uint32)
    return np.unique(ngrams(document.skeleton, n).astype(np.uint32))


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def ngrams(words: Words, n: int) -> NDArray[np.uint64]:
    """Return hashes of all runs of `n` words, in order."""
    if len(words) < n:
        return np.empty(0, np.uint64)
    hashes = (words + np.uint64(1)) * _MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    length = len(words) - n + 1
    total = np.zeros(length, dtype=np.uint64)
    for offset in range(n):
        total = (total ^ (total >> np.uint64(29))) * _MULTIPLIER + hashes[offset : offset + length]
    total ^= total >> np.uint64(32)
    return total * _MULTIPLIER >> np.uint64(8)


def shared_cases(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield documents that share rare test cases."""
    n_cases = [len(document.cases) for document in documents]
    cases = (document.cases for document in documents)
    for a, b, count in _sharing(*_owned(cases), MAX_CASE_DOCUMENTS):
        share = count / min(n_cases[a], n_cases[b])
        if count >= MIN_SHARED_CASES and share >= MIN_SHARED_SHARE:
            yield Match(a=a, b=b, kind=Kind.tests, score=round(share, 3))


def contaminated(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield an evaluation and a training document with a large share of the former's runs of words."""
    trains = np.array([document.role.may_train for document in documents], np.bool_)
    _, known = _owned(_runs(document) for document in documents if not document.role.may_train)
    if not len(known):
        return
    known = np.unique(known)
    owners, runs = _owned(found[places(found, known)[1]] for found in map(_runs, documents))
    _, at = np.unique(runs, return_inverse=True)
    is_rare = [
        np.bincount(at, side) <= MAX_RUN_DOCUMENTS for side in (trains[owners], ~trains[owners])
    ]
    usable = (is_rare[0] & is_rare[1])[at]
    owners, runs = owners[usable], runs[usable]
    totals = np.bincount(owners, minlength=len(documents))
    for a, b, count in _sharing(owners, runs, 2 * MAX_RUN_DOCUMENTS):
        share = count / totals[b if trains[a] else a]
        if trains[a] != trains[b] and count >= MIN_RUNS and share >= MIN_RUN_SHARE:
            yield Match(a=a, b=b, kind=Kind.ngrams, score=round(float(share), 3))


def _runs(document: Document) -> Hashes:
    return np.unique(ngrams(document.words, RUN_WORDS))


def _owned(parts: Iterable[Hashes]) -> tuple[NDArray[np.int64], Hashes]:
    """Return the items of all documents, and the position of each one's document."""
    held = list(parts)
    owners = np.repeat(np.arange(len(held)), [len(one) for one in held])
    return owners, np.concatenate([*held, np.empty(0, np.uint64)])


def _sharing(owners: NDArray[np.int64], items: Hashes, most: int) -> Iterator[tuple[int, int, int]]:
    """Yield pairs of documents with their number of common items, of those that at most `most` have."""
    a, b = equal_pairs(items, most)
    n = int(owners.max(initial=0)) + 1
    pairs, counts = np.unique(owners[a] * n + owners[b], return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        first, second = divmod(pair, n)
        yield first, second, count


def _words(documents: Sequence[Document]) -> tuple[Sets, NDArray[np.float32], Any] | None:
    """Return each document's stems without the common ones, their weights, and a matrix for cosines.

    Words of only one document cannot match, but count in its length, since they distinguish it.
    """
    with extra("dedup"):
        from scipy.sparse import csr_matrix

    n_documents = sum(len(one.words) >= MIN_WORDS for one in documents)
    stems = (one.stems if len(one.words) >= MIN_WORDS else one.stems[:0] for one in documents)
    sets = Sets.of(stems, sum(len(one.stems) for one in documents))
    known, counts = np.unique(sets.values, return_counts=True)
    usable = counts <= max(20, MAX_WORD_SHARE * n_documents)
    if not usable.any():
        return None
    known, counts = known[usable], counts[usable]
    parts = np.array_split(sets.values, max(1, len(sets.values) // _BUCKETS))
    found = [places(part, known) for part in parts]
    wanted = np.concatenate([is_known for _, is_known in found])
    numbers = np.concatenate([at[is_known].astype(np.uint32) for at, is_known in found])
    sets = Sets(numbers, sets.keep(wanted).starts)
    rarity = np.log(n_documents / counts).astype(np.float32)
    values = rarity[sets.values]
    shape = (len(sets), len(known))
    matrix = csr_matrix((values, sets.values.astype(np.int32), sets.starts), shape=shape)
    lengths = np.sqrt(np.add.reduceat(np.append(values, 0) ** 2, sets.starts[:-1]))
    matrix.data /= np.repeat(np.maximum(lengths, 1e-6), np.diff(sets.starts))
    return sets, np.maximum(rarity, 1e-3) ** 2, matrix


_SEARCHES: dict[str, Callable[[Sequence[Document]], Iterator[Match]]] = {
    "equal texts": partial(_equal, kind=Kind.exact, key=lambda one: one.sha256.encode()),
    "equal words": partial(_equal, kind=Kind.normalised, key=lambda one: one.words.tobytes()),
    "words": similar,
    "shared tests": shared_cases,
    "solutions": partial(_equal, kind=Kind.code, key=lambda one: (one.shape or "").encode()),
    "n-grams of evaluation sets": contaminated,
}
