"""Files of earlier commands in a folder of training files, which a later command into it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
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

    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of rows by file."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the command that wrote each file."""
    problems: Iterable[Problem] = ()
    """Their problems that the new files do not name."""


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
    try:
        manifest = json.loads((out / MANIFEST).read_text("utf-8"))
        counts = {
            name: int(n)
            for name, n in manifest["counts"].items()
            if name not in names and (out / f"{name}.parquet").exists()
        }
        settings = {name: settings_of(manifest, name) for name in counts}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or another program's
        return Earlier()
    if not counts or not (out / PROBLEMS).exists():
        return Earlier()
    known = ProblemFile(out / PROBLEMS)
    kept: dict[str, None] = {}
    for file in counts:
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
    return Earlier(counts=counts, settings=settings, problems=map(known.__getitem__, kept))


def settings_of(manifest: Mapping[str, Any], name: str) -> Any:
    """Return the settings of the command that wrote a file."""
    return manifest.get("earlier_settings", {}).get(name, manifest["settings"])
