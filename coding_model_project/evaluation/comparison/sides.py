"""What is compared: one evaluation, or several of one thing that differ by their seed."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import RUN_INFO, Evaluation, read_evaluation
from coding_model_project.grading.base import GRADER_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One thing that was evaluated, once or with several seeds."""

    name: str
    seeds: tuple[Evaluation, ...]


def read_side(word: str) -> Side:
    """A side as given on the command line: `[NAME=]FOLDER[,FOLDER...]`, where a folder may be a glob.

    Raises:
        ConfigError: nothing matches.
        DataError: a folder's evaluation is damaged.
    """
    name, equals, pattern = word.partition("=")
    if not equals or _folders(word.split(",")[0]):  # a sweep's folders have = in their names
        name, pattern = "", word
    folders = _folders(pattern)
    if not folders:
        raise ConfigError(f"{word}: no folder of an evaluation (with a {RUN_INFO}) matches")
    default = folders[0].name if len(folders) == 1 else Path(pattern.split(",")[0]).name.strip("*_")
    return Side(
        name=name or default or pattern, seeds=tuple(read_evaluation(folder) for folder in folders)
    )


def _folders(pattern: str) -> list[Path]:
    """Each evaluation's folder once, in the order given."""
    matches = [sorted(glob.glob(one)) for one in pattern.split(",")]  # noqa: PTH207 - may be absolute
    paths = [Path(found) for several in matches for found in several]
    return list({path.resolve(): path for path in paths if (path / RUN_INFO).exists()}.values())


def unlike(sides: Sequence[Side]) -> str | None:
    """How two of the evaluations were measured in different ways; None if all were in one."""
    first, *others = [one for side in sides for one in side.seeds]
    for other in others:
        if other.protocol_hash != first.protocol_hash:
            return (
                f"{first.path} and {other.path} were not evaluated alike: "
                f"{_difference(first, other)}"
            )
    return None


def refuse_other_graders(evaluations: Sequence[Evaluation]) -> None:
    """Make sure that one grader has judged all evaluations that are compared.

    Raises:
        ConfigError: two were judged by different `GRADER_VERSION`s; names them, and the way out.
    """
    judged = [(one, one.settings.get("grader_version")) for one in evaluations]
    known = [(one, str(version)) for one, version in judged if version is not None]
    for one, version in known[1:]:
        if version != known[0][1]:
            old = [str(e.path) for e, v in known if v != GRADER_VERSION]
            raise ConfigError(
                f"{known[0][0].path} was judged by grader {known[0][1]} and {one.path} by grader "
                f"{version}, so a difference may be the grader's; judge them by today's first: python "
                f"-m coding_model_project eval rejudge {' '.join(dict.fromkeys(old))}"
            )


def _difference(first: Evaluation, other: Evaluation) -> str:
    before, after = ({"protocol": e.protocol, **_flat(e.settings)} for e in (first, other))
    changed = [
        f"{key}: {before.get(key, 'absent')} → {after.get(key, 'absent')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]
    return ", ".join(changed) or f"protocol hash: {first.protocol_hash} → {other.protocol_hash}"


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Leaves of nested settings by their full key."""
    flat: dict[str, object] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
