"""Many tasks, read one by one: a bad one is set aside with its reason, and the rest go on.

Folders are taken as Harbor and people leave them:

    ROOT/TASK/                      a data set, as Harbor downloads it by default
    ROOT/SHORTUUID/TASK/            Harbor's cache, ~/.cache/harbor/tasks
    ROOT/packages/ORG/TASK/DIGEST/  the same, of published packages
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.failures import InvalidTask
from coding_model_project.harbor.format.task import CONFIG_FILE, Task, check_env, load_task
from coding_model_project.harbor.step import INSTRUCTION_FILE

_DEEPEST = 4
"""Folders between a root and a task: those of a published package in Harbor's cache."""

_PARTS = ("environment", "solution", "steps", "tests")
"""Folders of a task, which hold no other task."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """A folder that is, or should be, a task."""

    path: Path
    label: str
    """Its name, with as many of the folders above as it takes to tell it from others of that name."""
    source: str
    """The name of the data set that it is from: the folder that was given, unless it has another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A folder that is no usable task."""

    path: Path
    reason: str
    label: str
    """As of `TaskFolder`."""


def task_folders(paths: Iterable[Path], source: str | None = None) -> list[TaskFolder]:
    """Find tasks: each path itself if it is one, else those below it, by their names.

    A folder in which no task is found counts as one that is broken. Folders whose names begin with "."
    or "_" are skipped.

    Args:
        source: the data set's name; by default that of the folder that holds it.

    Raises:
        ConfigError: a path is no folder, or a folder without subfolders.
    """
    found: list[tuple[Path, str]] = []
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder of Harbor tasks")
        root = path.resolve()
        if _is_task(path):
            found.append((path, source or root.parent.name))
            continue
        inner = _subfolders(path)
        if not inner:
            raise ConfigError(f"{path}: neither a Harbor task nor a folder of them")
        below = [task for one in inner for task in _tasks_below(one, _DEEPEST - 1) or [one]]
        found += [(one, source or root.name) for one in sorted(below, key=_sorting)]
    labels = _labels([path for path, _ in found])
    return [
        TaskFolder(path=path, label=label, source=name)
        for (path, name), label in zip(found, labels, strict=True)
    ]


def _is_task(path: Path) -> bool:
    return (path / CONFIG_FILE).exists() or (path / INSTRUCTION_FILE).exists()


def _subfolders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.name[0] not in "._" and one.is_dir())


def _tasks_below(path: Path, depth: int) -> list[Path]:
    """Return the tasks at or below a folder."""
    if _is_task(path):
        return [path]
    if depth == 0:
        return []
    inner = [one for one in _subfolders(path) if one.name not in _PARTS]
    return [task for one in inner for task in _tasks_below(one, depth - 1)]


def _name_parts(path: Path) -> tuple[str, ...]:
    """Return the folders that name a task: a package's last one is its digest."""
    parts = path.resolve().parts[1:]
    return parts[:-1] if len(parts) > 1 and _DIGEST.fullmatch(parts[-1]) else parts


def _sorting(path: Path) -> tuple[str, str]:
    return _name_parts(path)[-1], str(path)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Return a name for each, with more of the path where shorter ones are the same."""
    names, labels = [_name_parts(path) for path in paths], [""] * len(paths)
    left = set(range(len(paths)))
    for n in range(1, 3):
        short = {number: "/".join(names[number][-n:]) for number in left}
        often = Counter(short.values())
        for number in list(left):
            if often[short[number]] == 1:
                labels[number] = short[number]
                left.remove(number)
    for number in left:
        labels[number] = str(paths[number])
    return labels


def read_tasks(
    paths: Iterable[Path],
    environ: Mapping[str, str] | None = None,
    *,
    oracle: bool = False,
    source: str | None = None,
) -> Iterator[Task | Refused]:
    """Tasks and refused folders, each read when it is asked for. Looks for the folders at once.

    Args:
        environ: the host's variables; a task that needs one that is not among them is refused. None
            does not look.
        oracle: whether the solutions will run, whose variables then count too.
        source: as of `task_folders`.

    Raises:
        ConfigError: as `task_folders`.
    """
    return _read(task_folders(paths, source), environ, oracle)


def _read(
    folders: Iterable[TaskFolder], environ: Mapping[str, str] | None, oracle: bool
) -> Iterator[Task | Refused]:
    for folder in folders:
        try:
            task = load_task(folder.path)
            if environ is not None:
                check_env(task, environ, oracle=oracle)
        except InvalidTask as error:
            yield Refused(path=folder.path, reason=str(error), label=folder.label)
        else:
            yield replace(task, label=folder.label, source=folder.source)
