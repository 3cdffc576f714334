"""Detection of evaluation problems that occur word for word in training documents.

The measure is the share of an evaluation statement's runs of `N` words that occur in one training
statement. Runs shared by many documents are boilerplate ("the first line contains a single integer")
and do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain

import numpy as np

from coding_model_project.data.dedup.documents import Document
from coding_model_project.data.dedup.search import Kind, Match, ngrams
from coding_model_project.data.dedup.sketches import places

N = 8
MIN_SHARE = 0.5
MIN_RUNS = 4
"""Minimum number of shared runs; fewer may be chance."""

MAX_DOCUMENTS = 10
"""Maximum number of training or evaluation documents with a run; beyond it, the run is boilerplate."""


def contaminated(documents: Sequence[Document]) -> list[Match]:
    """Return pairs of an evaluation and a training document, in either order of position."""
    owners = _owners(documents)
    if not owners:
        return []
    known = np.array(sorted(owners), dtype=np.uint64)
    hits = {
        index: runs
        for index, document in enumerate(documents)
        if document.role.may_train and (runs := _found(document, known))
    }
    n_training = Counter(chain.from_iterable(hits.values()))
    usable = {run: of for run, of in owners.items() if n_training[run] <= MAX_DOCUMENTS}
    totals = Counter(chain.from_iterable(usable.values()))
    found = []
    for index, runs in hits.items():
        shared = Counter(owner for run in runs for owner in usable.get(run, ()))
        for owner, count in shared.items():
            share = count / totals[owner]
            if count >= MIN_RUNS and share >= MIN_SHARE:
                a, b = sorted((index, owner))
                found.append(Match(a=a, b=b, kind=Kind.ngrams, score=round(share, 3)))
    return found


def _owners(documents: Sequence[Document]) -> dict[int, list[int]]:
    """Return the evaluation documents that contain each run, without boilerplate."""
    owners: dict[int, list[int]] = defaultdict(list)
    for index, document in enumerate(documents):
        if not document.role.may_train:
            for run in np.unique(ngrams(document.words, N)).tolist():
                owners[run].append(index)
    return {run: members for run, members in owners.items() if len(members) <= MAX_DOCUMENTS}


def _found(document: Document, known: np.ndarray) -> list[int]:
    runs = np.unique(ngrams(document.words, N))
    return runs[places(runs, known)[1]].tolist()
