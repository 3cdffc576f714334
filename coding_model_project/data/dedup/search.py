"""Search for pairs of documents that are the same problem, by six signals.

exact       equal statements
normalised  statements that are equal except for case, signs and blanks
near        skeletons that share most word triples: candidates from MinHash (datasketch), then an exact
            computation, so that the sketch can miss a pair but not invent one
paraphrase  a high cosine over the rarer words, weighted by rarity
tests       at least three shared test cases, and half of those of the document with fewer
code        gold solutions that are equal except for names

Completely reworded texts are found only by their tests or code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from typing import Any

import numpy as np

from coding_model_project.data.dedup.documents import Document
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
N_PERMUTATIONS = 128
CANDIDATE_THRESHOLD = 0.5
"""Threshold of the sketches for an exact computation; below `NEAR`."""

MIN_SHARED_CASES = 3
MIN_SHARED_SHARE = 0.5
MAX_CASE_DOCUMENTS = 20
"""Maximum number of documents with a test case; beyond it, the case is trivial ("1" → "1")."""

MAX_WORD_SHARE = 0.1
"""Maximum share of documents with a word; beyond it, the paraphrase signal ignores the word."""

MAX_SHINGLE_DOCUMENTS, MAX_SHINGLE_SHARE = 20, 0.005
"""Maximum number and share of documents with a run; beyond both, the near signal ignores the run."""

MIN_WORDS = 8
"""Minimum number of words of a statement; shorter ones share words by chance."""

MAX_GROUP = 50
"""Maximum size of a group of equal documents for which all pairs are returned."""

_BLOCK = 512
_NONE = np.empty(0, dtype=np.uint64)


class Kind(StrEnum):
    """The signal that two documents are the same problem, strongest first."""

    exact = "exact"
    normalised = "normalised"
    near = "near"
    tests = "tests"
    code = "code"
    paraphrase = "paraphrase"
    ngrams = "ngrams"
    """See `contamination`."""


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
    return sorted(best.values(), key=lambda match: (match.a, match.b))


def equal_texts(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield exact and normalised duplicates."""
    yield from _grouped(documents, Kind.exact, lambda document: document.sha256)
    yield from _grouped(documents, Kind.normalised, lambda document: " ".join(document.words))


def equal_code(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield documents whose solutions have the same structure."""
    yield from _grouped(documents, Kind.code, lambda document: document.shape)


def _grouped(
    documents: Sequence[Document], kind: Kind, key: Callable[[Document], str | None]
) -> Iterator[Match]:
    """Yield all pairs of equal documents; in very large groups, pairs with one representative only."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, document in enumerate(documents):
        if value := key(document):
            groups[value].append(index)
    for members in groups.values():
        if len(members) <= MAX_GROUP:
            pairs = combinations(members, 2)
        else:  # represented by an evaluation problem if there is one, whose repeats must be found
            held_out = [i for i in members if not documents[i].role.may_train]
            chosen = (held_out or members)[0]
            pairs = (tuple(sorted((chosen, i))) for i in members if i != chosen)
        yield from (Match(a=a, b=b, kind=kind) for a, b in pairs)


def near(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield documents that share word triples, by MinHash and then exactly."""
    with extra("dedup"):
        from datasketch import MinHash, MinHashLSH

    index: Any = MinHashLSH(threshold=CANDIDATE_THRESHOLD, num_perm=N_PERMUTATIONS)
    all_shingles = _without_boilerplate([shingles(document) for document in documents])
    generator = MinHash(num_perm=N_PERMUTATIONS, hashfunc=_low_bits)
    for number, document in enumerate(documents):
        mine = all_shingles[number]
        if not len(mine):
            continue
        sketch = generator.copy()
        sketch.update_batch(mine)
        for other in index.query(sketch):
            score = _jaccard(mine, all_shingles[other])
            if score >= _threshold(document, documents[other], NEAR, NEAR_SHORT):
                yield Match(a=other, b=number, kind=Kind.near, score=round(score, 3))
        index.insert(number, sketch, check_duplication=False)


def _without_boilerplate(sets: list[np.ndarray]) -> list[np.ndarray]:
    """Remove shingles of many documents, which share sentences but not problems."""
    hashes, counts = np.unique(np.concatenate([*sets, _NONE]), return_counts=True)
    common = hashes[counts > max(MAX_SHINGLE_DOCUMENTS, MAX_SHINGLE_SHARE * len(sets))]
    return [mine[~np.isin(mine, common, assume_unique=True)] for mine in sets]


def _threshold(a: Document, b: Document, long: float, short: float) -> float:
    return short if min(len(a.words), len(b.words)) < SHORT_WORDS else long


def _low_bits(value: np.uint64) -> int:
    """Return 32 bits of a shingle, which is already a hash, for MinHash."""
    return int(value) & 0xFFFFFFFF


def shingles(document: Document, n: int = SHINGLE_WORDS) -> np.ndarray:
    """Return hashes of all runs of `n` words of the skeleton; none for the shortest statements."""
    if len(document.skeleton) < MIN_WORDS:
        return _NONE
    return np.unique(ngrams(document.skeleton, n))


_WORD_HASHES: dict[str, int] = {}
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def ngrams(words: Sequence[str], n: int) -> np.ndarray:
    """Return hashes of all runs of `n` words, in order."""
    if len(words) < n:
        return _NONE
    hashes = np.fromiter(map(_word_hash, words), dtype=np.uint64, count=len(words))
    length = len(words) - n + 1
    total = np.zeros(length, dtype=np.uint64)
    for offset in range(n):
        total = (total ^ (total >> np.uint64(29))) * _MULTIPLIER + hashes[offset : offset + length]
    total ^= total >> np.uint64(32)
    return total * _MULTIPLIER >> np.uint64(8)


def _word_hash(word: str) -> int:
    known = _WORD_HASHES.get(word)
    if known is None:
        from hashlib import blake2b

        known = int.from_bytes(blake2b(word.encode(), digest_size=8).digest())
        _WORD_HASHES[word] = known
    return known


def _jaccard(a: np.ndarray, b: np.ndarray) -> float:
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / max(1, len(a) + len(b) - shared)


def shared_cases(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield documents that share rare test cases."""
    holders: dict[int, list[int]] = defaultdict(list)
    for number, document in enumerate(documents):
        for case in document.cases.tolist():
            holders[case].append(number)
    shared: dict[tuple[int, int], int] = defaultdict(int)
    for members in holders.values():
        if 1 < len(members) <= MAX_CASE_DOCUMENTS:
            for pair in combinations(members, 2):
                shared[pair] += 1
    for (a, b), count in shared.items():
        share = count / min(len(documents[a].cases), len(documents[b].cases))
        if count >= MIN_SHARED_CASES and share >= MIN_SHARED_SHARE:
            yield Match(a=a, b=b, kind=Kind.tests, score=round(share, 3))


def paraphrases(documents: Sequence[Document]) -> Iterator[Match]:
    """Yield documents with a high cosine over the rarer words, in any order, without boilerplate."""
    with extra("dedup"):
        from scipy.sparse import csr_matrix

    weights = _weights(documents)
    if weights is None:
        return
    matrix, long_enough = weights
    transposed = csr_matrix(matrix.T)
    triples = _without_boilerplate([shingles(document) for document in documents])
    for start in range(0, matrix.shape[0], _BLOCK):
        block = (matrix[start : start + _BLOCK] @ transposed).tocoo()
        later = (block.col > block.row + start) & (block.data >= PARAPHRASE_WITH_TRIPLES)
        for row, column, score in zip(
            block.row[later], block.col[later], block.data[later], strict=True
        ):
            a, b = int(long_enough[start + row]), int(long_enough[column])
            least = _threshold(documents[a], documents[b], PARAPHRASE, PARAPHRASE_SHORT)
            if least == PARAPHRASE and _jaccard(triples[a], triples[b]) >= SHARED_TRIPLES:
                least = PARAPHRASE_WITH_TRIPLES
            if score >= least:
                yield Match(a=a, b=b, kind=Kind.paraphrase, score=round(float(score), 3))


def _weights(documents: Sequence[Document]):
    """Return a matrix (documents × features) with rows of length one, and the rows' documents."""
    with extra("dedup"):
        from scipy.sparse import coo_matrix, diags

    features: dict[str, int] = {}
    rows, columns = [], []
    long_enough = [i for i, d in enumerate(documents) if len(d.skeleton) >= MIN_WORDS]
    for row, index in enumerate(long_enough):
        # In the statement's order: a set's would round the scores differently in every process.
        for word in dict.fromkeys(map(_stem, documents[index].skeleton)):
            rows.append(row)
            columns.append(features.setdefault(word, len(features)))
    if not rows:
        return None
    shape = (len(long_enough), len(features))
    counts = coo_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=shape).tocsc()
    n_documents = np.diff(counts.indptr)
    most = max(20, MAX_WORD_SHARE * len(long_enough))
    useful = (n_documents > 1) & (n_documents <= most)
    rarity = np.log(len(long_enough) / np.maximum(n_documents, 1)).astype(np.float32)
    # Words of only one document cannot match, but count in its length, since they distinguish it.
    squares = counts @ ((rarity * (n_documents <= most)) ** 2)
    lengths = np.sqrt(np.asarray(squares).ravel())
    weighted = counts[:, useful] @ diags(rarity[useful])
    scaled = diags(1 / np.maximum(lengths, 1e-6)) @ weighted
    return scaled.tocsr(), long_enough


def _stem(word: str) -> str:
    """Return a crude stem: remove plurals and verb endings."""
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "es", "ed", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_SEARCHES: dict[str, Callable[[Sequence[Document]], Iterator[Match]]] = {
    "equal texts": equal_texts,
    "MinHash": near,
    "shared tests": shared_cases,
    "solutions": equal_code,
    "rare words": paraphrases,
}
