"""A search for duplicates over data sets by name, and its files.

<out>/manifest.json   every set with its origin, licence, counts and content hash; the removed problems
                      with reasons; the evaluation sets that were not found
      report.md       the same for people
      removed.jsonl   a line per removed problem: id, kind, the repeated problem, score
      problems.jsonl  the remaining training problems, in our own schema
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from coding_model_project.data.dedup import contamination, search
from coding_model_project.data.dedup.decide import Decision, decide
from coding_model_project.data.dedup.documents import Document, document
from coding_model_project.data.dedup.search import Say
from coding_model_project.data.governance import EVALUATION_SETS, Role
from coding_model_project.data.loaders import (
    Place,
    SetAside,
    Trail,
    data_dir,
    find,
    given_set,
    stream,
)
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.types import Problem

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
    place = Place(data_dir=data_dir(folder), columns=columns or {}, split=split)
    read = [_read(word, place, max_tests, documents, say) for word in training]
    if not any(one.role.may_train for one in documents):
        raise ConfigError(f"{', '.join(training)}: test only or empty: nothing there may train")
    n_training = len(documents)
    found, absent = [], []
    for word in against:
        if word in training:
            continue
        try:
            searched = Place(data_dir=place.data_dir, hub=download)
            found.append(_read(word, searched, max_tests, documents, say))
        except (ConfigError, DownloadError) as error:
            absent.append((word, str(error)))
    documents = _deduplicated(documents, n_training)
    decision = decide(documents, say)
    governed = Governed(
        training=tuple(read),
        evaluation=tuple(found),
        absent=tuple(absent),
        decision=decision,
        documents=len(documents),
        seconds=time.monotonic() - started,
    )
    say("writing the remaining problems")
    _write(governed, _read_again(training, place, max_tests), out)
    return governed


def _read(word: str, place: Place, max_tests: int, documents: list[Document], say: Say) -> SetFacts:
    say(f"reading {word}")
    name, path = given_set(word)
    loader = find(name)
    facts = SetFacts(
        name=name, path=path, licence=loader[0].published.licence if loader else "yours"
    )
    trail = Trail(origins=[], notes=[])
    digest = hashlib.sha256()
    for item in stream(name, _at(place, path), trail, max_tests=max_tests):
        if isinstance(item, SetAside):
            facts.set_aside[item.reason] += 1
            continue
        one = document(item)
        documents.append(one)
        facts.problems += 1
        facts.roles[one.role] += 1
        digest.update(one.sha256.encode())
    facts.origin, facts.notes = ", ".join(trail.origins), tuple(trail.notes)
    facts.sha256 = digest.hexdigest()
    return facts


def _at(place: Place, path: str | None) -> Place:
    """Return a place at a path; the columns are those of files."""
    return replace(place, path=path, columns=place.columns if path is not None else {})


def _deduplicated(documents: Sequence[Document], n_training: int) -> list[Document]:
    """Return each problem once; documents of sets to compare with count as evaluation in any case.

    Args:
        n_training: the number of leading documents that belong to training sets.
    """
    found = {one.id: one for one in documents[:n_training]}
    for one in documents[n_training:]:
        found.setdefault(one.id, replace(one, role=Role.validation) if one.role.may_train else one)
    return list(found.values())


def _write(governed: Governed, problems: Iterable[Problem], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    kept = set(governed.decision.kept)
    write_problems(out / "problems.jsonl", (one for one in problems if one.id in kept))
    lines = (json.dumps(asdict(removal)) + "\n" for removal in governed.decision.removed)
    (out / "removed.jsonl").write_text("".join(lines))
    manifest = as_json(governed)
    manifest["files"] = {
        name: _file_hash(out / name) for name in ("problems.jsonl", "removed.jsonl")
    }
    (out / "report.md").write_text(as_markdown(governed))
    partial = out / "manifest.partial"
    partial.write_text(json.dumps(manifest, indent=2) + "\n")
    partial.replace(out / "manifest.json")


def _read_again(training: Sequence[str], place: Place, max_tests: int) -> Iterable[Problem]:
    """Read the training sets again, since keeping their tests during the search takes too much memory."""
    for word in training:
        name, path = given_set(word)
        trail = Trail(origins=[], notes=[])
        for item in stream(name, _at(place, path), trail, max_tests=max_tests):
            if not isinstance(item, SetAside):
                yield item


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_json(governed: Governed) -> dict[str, Any]:
    """Return the manifest without the hashes of the written files."""
    decision = governed.decision
    return {
        "training": [_facts(facts) for facts in governed.training],
        "evaluation": [_facts(facts) for facts in governed.evaluation],
        "not_checked": dict(governed.absent),
        "kept": len(decision.kept),
        "removed": len(decision.removed),
        "removed_by": _reasons(decision),
        "removals": [asdict(removal) for removal in decision.removed],
        "pairs": [[*sets, count] for sets, count in sorted(decision.pairs.items())],
        "between_evaluations": decision.between_evaluations,
        "rules": {
            "near": search.NEAR,
            "near_short": search.NEAR_SHORT,
            "paraphrase": search.PARAPHRASE,
            "paraphrase_short": search.PARAPHRASE_SHORT,
            "paraphrase_with_triples": [search.PARAPHRASE_WITH_TRIPLES, search.SHARED_TRIPLES],
            "shared_cases": [search.MIN_SHARED_CASES, search.MIN_SHARED_SHARE],
            "ngram_words": contamination.N,
            "ngram_share": contamination.MIN_SHARE,
        },
        "seconds": round(governed.seconds, 1),
    }


def _facts(facts: SetFacts) -> dict[str, Any]:
    return {**asdict(facts), "roles": dict(facts.roles), "set_aside": dict(facts.set_aside)}


def _reasons(decision: Decision) -> dict[str, int]:
    """Count removals by the repeated problem's role and by kind."""
    counts = Counter(f"{one.other_role}:{one.kind}" for one in decision.removed)
    return dict(counts.most_common())


def as_markdown(governed: Governed) -> str:
    """Return the report as Markdown."""
    decision = governed.decision
    lines = [
        "# Data governance report",
        "",
        f"{len(decision.kept)} training problems kept, {len(decision.removed)} removed; "
        f"{governed.documents} documents searched in {governed.seconds:.0f} s.",
        "",
        "| set | use | problems | may train | set aside | licence | from |",
        "|---|---|---|---|---|---|---|",
    ]
    for use, sets in (("training", governed.training), ("evaluation", governed.evaluation)):
        for one in sets:
            aside = sum(one.set_aside.values())
            lines.append(
                f"| {one.name} | {use} | {one.problems} | {one.roles['train']} | {aside} | "
                f"{one.licence} | {one.origin} |"
            )
    if governed.absent:
        lines += ["", "**Not checked**, since these evaluation sets were not found:", ""]
        lines += [f"- `{name}`: {why}" for name, why in governed.absent]
    lines += [
        "",
        "## Removed",
        "",
        "| role of the repeated problem | signal | problems |",
        "|---|---|---|",
    ]
    for reason, count in _reasons(decision).items():
        role, _, kind = reason.partition(":")
        lines.append(f"| {role} | {kind} | {count} |")
    lines += ["", f"The first {N_SHOWN} (all in `removed.jsonl`):", ""]
    lines += [
        f"- `{one.id}` repeats `{one.other}` ({one.kind}, {one.score:g})"
        for one in decision.removed[:N_SHOWN]
    ]
    lines += ["", "## Set aside by the loaders", ""]
    for one in (*governed.training, *governed.evaluation):
        lines += [f"- {one.name}: {n} × {why}" for why, n in one.set_aside.most_common(N_SHOWN)]
    lines += [
        "",
        f"Pairs of equal evaluation problems (kept, all in the manifest): "
        f"{len(decision.between_evaluations)}.",
        "",
    ]
    return "\n".join(lines)
