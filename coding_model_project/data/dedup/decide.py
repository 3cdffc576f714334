"""The choice of training problems to remove. Evaluation problems are reported, never removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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

    @property
    def reasons(self) -> dict[str, int]:
        """Numbers of removals by the repeated problem's role and by kind, as "test:exact"."""
        return dict(Counter(f"{one.other_role}:{one.kind}" for one in self.removed).most_common())


def decide(documents: Sequence[Document], say: Say = lambda _: None) -> Decision:
    """Search for duplicates, and remove training problems that repeat an evaluation problem or an
    earlier training problem.

    Args:
        documents: the documents of training and evaluation sets, distinguished by their roles.
    """
    found = matches(documents, say)
    trains = [document.role.may_train for document in documents]
    removed = _removed(documents, found, trains)
    return Decision(
        removed=tuple(removed[i] for i in sorted(removed)),
        kept=tuple(one.id for i, one in enumerate(documents) if trains[i] and i not in removed),
        between_evaluations=tuple(
            (documents[m.a].id, documents[m.b].id, m.kind)
            for m in found
            if not (trains[m.a] or trains[m.b])
        ),
        pairs=Counter((_name(documents[m.a]), _name(documents[m.b]), str(m.kind)) for m in found),
    )


def _removed(
    documents: Sequence[Document], found: Sequence[Match], trains: Sequence[bool]
) -> dict[int, Removal]:
    """Remove what repeats an evaluation problem, then what repeats an earlier training problem.

    A removed document never causes the removal of another training document.
    """
    removed: dict[int, Removal] = {}
    for match in found:
        for mine, other in ((match.a, match.b), (match.b, match.a)):
            if trains[mine] and not trains[other]:
                removed.setdefault(mine, _removal(documents, mine, other, match))
    for match in sorted(found, key=lambda match: (match.b, match.a)):
        if trains[match.a] and trains[match.b] and not removed.keys() & {match.a, match.b}:
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
