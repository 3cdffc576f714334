"""Sides of a comparison: an evaluation, or several that differ only in their seed."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import RUN_INFO, Evaluation, read_evaluation
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.runs.refusal import differences, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A model or method, evaluated with one or more seeds."""

    name: str
    seeds: tuple[Evaluation, ...]


def read_side(word: str) -> Side:
    """Read a side from `[NAME=]FOLDER[,FOLDER...]`, where a folder may be a glob.

    Raises:
        ConfigError: no folder matches.
        DataError: a folder's evaluation is damaged.
    """
    name, equals, pattern = word.partition("=")
    if not equals or _folders(word.split(",")[0]):  # names of a sweep's folders contain =
        name, pattern = "", word
    folders = _folders(pattern)
    if not folders:
        raise ConfigError(f"{word}: no matching evaluation folder (with a {RUN_INFO})")
    default = folders[0].name if len(folders) == 1 else Path(pattern.split(",")[0]).name.strip("*_")
    return Side(
        name=name or default or pattern, seeds=tuple(read_evaluation(folder) for folder in folders)
    )


def _folders(pattern: str) -> list[Path]:
    """Return the distinct evaluation folders that match, in the given order."""
    matches = [sorted(glob.glob(one)) for one in pattern.split(",")]  # noqa: PTH207 - may be absolute
    paths = [Path(found) for several in matches for found in several]
    return list({path.resolve(): path for path in paths if (path / RUN_INFO).exists()}.values())


def unlike(sides: Sequence[Side]) -> str | None:
    """Return how two evaluations differ in their protocol or data, or None if none do."""
    first, *others = [one for side in sides for one in side.seeds]
    for other in others:
        if other.protocol_hash != first.protocol_hash:
            return (
                f"{first.path} and {other.path} were evaluated differently: "
                f"{_difference(first, other)}"
            )
    return None


def refuse_other_graders(evaluations: Sequence[Evaluation]) -> None:
    """Refuse evaluations judged by different graders.

    Raises:
        ConfigError: two evaluations have different `GRADER_VERSION`s; names them and the remedy.
    """
    judged = [(one, one.settings.get("grader_version")) for one in evaluations]
    known = [(one, str(version)) for one, version in judged if version is not None]
    for one, version in known[1:]:
        if version != known[0][1]:
            old = [str(e.path) for e, v in known if v != GRADER_VERSION]
            raise ConfigError(
                f"{known[0][0].path} was judged by grader {known[0][1]} and {one.path} by grader "
                f"{version}, so a difference may come from the grader; rejudge them first: python "
                f"-m coding_model_project eval rejudge {' '.join(dict.fromkeys(old))}"
            )


def _difference(first: Evaluation, other: Evaluation) -> str:
    changed = differences(*({"protocol": one.protocol, **one.settings} for one in (first, other)))
    return listed(changed) or f"protocol hash: {first.protocol_hash} → {other.protocol_hash}"
