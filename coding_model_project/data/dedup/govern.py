"""A search for duplicates over data sets by name, and its files.

<out>/manifest.json   every set with its origin, licence, counts and content hash; the removed problems
                      with reasons; the evaluation sets that were not found
      report.md       the same for people
      removed.jsonl   a line per removed problem: id, kind, the repeated problem, score
      problems.jsonl  the remaining training problems, in our own schema
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coding_model_project.atomic import write_json, write_lines
from coding_model_project.data.dedup import search
from coding_model_project.data.dedup.documents import Document, document
from coding_model_project.data.dedup.search import Match, Say, matches
from coding_model_project.data.files import file_hash, rendered
from coding_model_project.data.governance import EVALUATION_SETS, Role
from coding_model_project.data.loaders import Place, Trail, data_dir, find, given_set, stream
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.types import Problem


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
        pairs=Counter(
            (_set_of(documents[m.a]), _set_of(documents[m.b]), str(m.kind)) for m in found
        ),
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


def _set_of(document: Document) -> str:
    return f"{document.source}/{document.split}"


N_SHOWN = 20
DEFAULT_MAX_TESTS = 50
"""Maximum number of hidden tests read and written per problem; contest sets hold hundreds."""


@dataclass(slots=True, kw_only=True)
class SetFacts:
    """Facts about a set that was read."""

    name: str
    path: str | None
    licence: str
    origin: str = ""
    problems: int = 0
    roles: Counter[str] = field(default_factory=Counter)
    set_aside: Counter[str] = field(default_factory=Counter)
    sha256: str = ""
    """The hash over the hashes of all statements, in order."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Governed:
    """A finished search: the sets read, and the decision."""

    training: tuple[SetFacts, ...]
    evaluation: tuple[SetFacts, ...]
    absent: tuple[tuple[str, str], ...]
    """Evaluation sets that were not found, with the reason; nothing was compared with these."""
    decision: Decision
    documents: int
    seconds: float


def govern(
    training: Sequence[str],
    *,
    against: Sequence[str] = EVALUATION_SETS,
    out: Path,
    folder: Path | None = None,
    download: bool = False,
    max_tests: int = DEFAULT_MAX_TESTS,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    say: Say = lambda _: None,
) -> Governed:
    """Search training sets for duplicates and for evaluation problems, and write the remaining problems.

    Args:
        training: names, NAME=PATH or paths; only their problems that may train are written.
        against: evaluation sets in the same forms; missing ones are reported as absent.
        folder: the folder to search by name.
        download: whether to search for evaluation sets on the hub too.
        columns: the column for each field that has another name in training files given by path.
        split: the split of the training sets to read; see `Place.split`.

    Raises:
        ConfigError: a training set was not found, or holds nothing that may train.
        DataError: a file is damaged.
    """
    started = time.monotonic()
    documents: list[Document] = []

    def problems(word: str, trail: Trail, *, trains: bool) -> Iterator[Problem]:
        name, path = given_set(word)
        mapped = columns if columns and trains and path is not None else {}
        place = Place(
            path=path,
            data_dir=data_dir(folder),
            hub=trains or download,
            columns=mapped,
            split=split if trains else None,
        )
        return stream(name, place, trail, max_tests=max_tests)

    def read(word: str, *, trains: bool) -> SetFacts:
        say(f"reading {word}")
        name, path = given_set(word)
        loader, trail, digest = find(name), Trail(), hashlib.sha256()
        licence = loader[0].published.licence if loader else "yours"
        facts = SetFacts(name=name, path=path, licence=licence)
        for one in map(document, problems(word, trail, trains=trains)):
            documents.append(one)
            facts.problems += 1
            facts.roles[str(one.role)] += 1
            digest.update(one.sha256.encode())
        facts.origin, facts.notes = ", ".join(trail.origins), tuple(trail.notes)
        facts.set_aside.update(one.reason for one in trail.set_aside)
        facts.sha256 = digest.hexdigest()
        return facts

    facts = [read(word, trains=True) for word in training]
    if not any(one.role.may_train for one in documents):
        raise ConfigError(f"{', '.join(training)}: test only or empty: nothing there may train")
    n_training = len(documents)
    found, absent = [], []
    for word in against:
        if word in training:
            continue
        try:
            found.append(read(word, trains=False))
        except (ConfigError, DownloadError) as error:
            absent.append((word, str(error)))
    # Each problem once; documents of sets to compare with count as evaluation in any case.
    by_id = {one.id: one for one in documents[:n_training]}
    for one in documents[n_training:]:
        by_id.setdefault(one.id, replace(one, role=Role.validation) if one.role.may_train else one)
    documents = list(by_id.values())
    decision = decide(documents, say)
    governed = Governed(
        training=tuple(facts),
        evaluation=tuple(found),
        absent=tuple(absent),
        decision=decision,
        documents=len(documents),
        seconds=time.monotonic() - started,
    )
    say("writing the remaining problems")
    # Read again, since keeping their tests during the search takes too much memory.
    again = (problem for word in training for problem in problems(word, Trail(), trains=True))
    _write(governed, again, out)
    return governed


def _write(governed: Governed, problems: Iterable[Problem], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    kept = set(governed.decision.kept)
    write_problems(out / "problems.jsonl", (one for one in problems if one.id in kept))
    write_lines(out / "removed.jsonl", governed.decision.removed)
    (out / "report.md").write_text(as_markdown(governed))
    manifest = as_json(governed)
    files = ("problems.jsonl", "removed.jsonl")
    manifest["files"] = {name: file_hash(out / name) for name in files}
    write_json(out / "manifest.json", manifest)


def as_json(governed: Governed) -> dict[str, Any]:
    """Return the manifest without the hashes of the written files."""
    decision = governed.decision
    return {
        "training": governed.training,
        "evaluation": governed.evaluation,
        "not_checked": dict(governed.absent),
        "kept": len(decision.kept),
        "removed": len(decision.removed),
        "removed_by": decision.reasons,
        "removals": decision.removed,
        "pairs": [[*sets, count] for sets, count in sorted(decision.pairs.items())],
        "between_evaluations": decision.between_evaluations,
        "rules": {
            "near": search.NEAR,
            "near_short": search.NEAR_SHORT,
            "paraphrase": search.PARAPHRASE,
            "paraphrase_short": search.PARAPHRASE_SHORT,
            "paraphrase_with_triples": [search.PARAPHRASE_WITH_TRIPLES, search.SHARED_TRIPLES],
            "shared_cases": [search.MIN_SHARED_CASES, search.MIN_SHARED_SHARE],
            "ngram_words": search.RUN_WORDS,
            "ngram_share": search.MIN_RUN_SHARE,
        },
        "seconds": round(governed.seconds, 1),
    }


def as_markdown(governed: Governed) -> str:
    """Return the report as Markdown."""
    page = rendered(Path(__file__).parent / "report.md.j2", governed=governed, n_shown=N_SHOWN)
    return re.sub("\n{3,}", "\n\n", page)
