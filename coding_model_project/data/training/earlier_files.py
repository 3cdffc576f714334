"""Files of earlier commands in a folder of training files, which a later command into it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coding_model_project.data.problems import ProblemFile, problem_line
from coding_model_project.data.training.rows import ids_of_rows
from coding_model_project.errors import ConfigError
from coding_model_project.types import Problem

MANIFEST = "manifest.json"
PROBLEMS = "problems.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Files of rows that a command does not replace, with the problems that they name."""

    commands: tuple[Mapping[str, Any], ...] = ()
    """The settings and counts of each earlier command, of files that are still there."""
    file: Mapping[str, Problem] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    """Their problems that the new files do not name."""

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows by file."""
        return {name: n for command in self.commands for name, n in command["counts"].items()}

    def problems(self) -> Iterator[Problem]:
        """Yield their problems that the new files do not name."""
        return (self.file[problem_id] for problem_id in self.ids)


def earlier_files(
    out: Path, names: Collection[str], problem: Callable[[str], Problem | None]
) -> Earlier:
    """Return the files in a folder that stay beside new ones.

    Args:
        names: the names of the new files, without their extension.
        problem: a function that returns a problem of the new files by its id.

    Raises:
        ConfigError: a kept file names a problem that the new files have in another form: one file of
            problems cannot hold both.
    """
    commands = tuple(
        {**command, "counts": kept}
        for command in _commands(out / MANIFEST)
        if (kept := {name: n for name, n in command["counts"].items() if _stays(out, name, names)})
    )
    if not commands or not (out / PROBLEMS).exists():
        return Earlier()
    known = ProblemFile(out / PROBLEMS)
    kept: dict[str, None] = {}
    for file in (name for command in commands for name in command["counts"]):
        for problem_id in ids_of_rows(out / f"{file}.parquet"):
            if problem_id in kept or (old := known.get(problem_id)) is None:
                continue
            if (new := problem(problem_id)) is None:
                kept[problem_id] = None
            elif problem_line(old) != problem_line(new):
                raise ConfigError(
                    f"--out={out}: {file}.parquet has another version of problem {problem_id}; pass "
                    f"another --out, or delete {file}.parquet"
                )
    return Earlier(commands=commands, file=known, ids=tuple(kept))


def _stays(out: Path, name: str, names: Collection[str]) -> bool:
    return name not in names and (out / f"{name}.parquet").exists()


def _commands(manifest: Path) -> list[Mapping[str, Any]]:
    """Return the commands of a manifest, the latest one last; none if it is not one of training files."""
    try:
        read = json.loads(manifest.read_text("utf-8"))
        latest = {"settings": read["settings"], "counts": read["counts"]}
        commands = [*read.get("earlier", ()), latest]
        others = {name for one in commands[:-1] for name in one["counts"]}
        latest["counts"] = {
            name: int(n) for name, n in latest["counts"].items() if name not in others
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return commands
