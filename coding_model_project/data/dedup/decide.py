"""The choice of training problems to remove. Evaluation problems are reported, never removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coding_model_project.data.dedup.contamination import contaminated
from coding_model_project.data.dedup.documents import Document
from coding_model_project.data.dedup.search import Match, Say, matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A removed training problem, and the one that it repeats."""

    id: str
    kind: str
    other: str
    other_role: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of a search."""

    removed: tuple[Removal, ...]
    kept: tuple[str, ...]
    """Ids of training problems."""
    between_evaluations: tuple[tuple[str, str, str], ...]
    """Pairs of equal evaluation problems, with the kind: reported, never removed."""
    pairs: Counter[tuple[str, str, str]]
    """Number of pairs by (set, other set, kind)."""


def decide(documents: Sequence[Document], say: Say = lambda _: None) -> Decision:
    """Search for duplicates, and remove training problems that repeat an evaluation problem or an
    earlier training problem.

    Args:
        documents: the documents of training and evaluation sets, distinguished by their roles.
    """
    found = matches(documents, say)
    say("searching n-grams of evaluation sets")
    known = {(match.a, match.b) for match in found}
    found += [match for match in contaminated(documents) if (match.a, match.b) not in known]
    removed = _against_evaluation(documents, found)
    removed |= _within_training(documents, found, set(removed))
    trains = [i for i, document in enumerate(documents) if document.role.may_train]
    return Decision(
        removed=tuple(removed[i] for i in sorted(removed)),
        kept=tuple(documents[i].id for i in trains if i not in removed),
        between_evaluations=tuple(
            (documents[m.a].id, documents[m.b].id, m.kind)
            for m in found
            if not (documents[m.a].role.may_train or documents[m.b].role.may_train)
        ),
        pairs=Counter((_name(documents[m.a]), _name(documents[m.b]), str(m.kind)) for m in found),
    )


def _against_evaluation(
    documents: Sequence[Document], found: Sequence[Match]
) -> dict[int, Removal]:
    removed: dict[int, Removal] = {}
    for match in found:
        for mine, other in ((match.a, match.b), (match.b, match.a)):
            if documents[mine].role.may_train and not documents[other].role.may_train:
                removed.setdefault(mine, _removal(documents, mine, other, match))
    return removed


def _within_training(
    documents: Sequence[Document], found: Sequence[Match], gone: set[int]
) -> dict[int, Removal]:
    """Remove duplicates in order of position; a removed document never causes another removal."""
    removed: dict[int, Removal] = {}
    for match in sorted(found, key=lambda match: (match.b, match.a)):
        if not (documents[match.a].role.may_train and documents[match.b].role.may_train):
            continue
        if match.a in gone or match.a in removed or match.b in gone or match.b in removed:
            continue
        removed[match.b] = _removal(documents, match.b, match.a, match)
    return removed


def _removal(documents: Sequence[Document], mine: int, other: int, match: Match) -> Removal:
    return Removal(
        id=documents[mine].id,
        kind=str(match.kind),
        other=documents[other].id,
        other_role=str(documents[other].role),
        score=match.score,
    )


def _name(document: Document) -> str:
    return f"{document.source}/{document.split}"
