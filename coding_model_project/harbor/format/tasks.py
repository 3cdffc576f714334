"""A reader of many tasks; it sets invalid ones aside with a reason, and continues with the rest.

Supported layouts:

    ROOT/TASK/                      a data set, as Harbor downloads it by default
    ROOT/SHORTUUID/TASK/            Harbor's cache, ~/.cache/harbor/tasks
    ROOT/packages/ORG/TASK/DIGEST/  the same, of published packages
    FILE.parquet                    packed tasks (`packed`), which are unpacked beside it
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.failures import InvalidTask
from coding_model_project.harbor.format.packed import unpacked
from coding_model_project.harbor.format.task import CONFIG_FILE, Task, check_env, load_task
from coding_model_project.harbor.step import INSTRUCTION_FILE

_DEEPEST = 4
"""Maximum folders between a root and a task, as for a published package in Harbor's cache."""

_RESULTS = ("config.json", "result.json")
"""Files of a job's folder and of a trial's."""

_PARTS = ("environment", "solution", "steps", "tests")
"""Folders of a task, which contain no other task."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """A folder that is, or should be, a task."""

    path: Path
    label: str
    """Its name, with as many parent folders as are needed to make it unique."""
    source: str
    """The name of its data set; default: the given folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A folder that is not a valid task."""

    path: Path
    reason: str
    label: str
    """See `TaskFolder.label`."""

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor grade` prints, with the keys of `TrialOutcome.line`."""
        reason = " ".join(self.reason.split())
        missing = dict.fromkeys(("rewards", "failure_cause", "integrity"))
        about = {"task": self.label, "reward_valid": False, "exception": "InvalidTask"}
        return {**about, **missing, "reason": reason}


def task_folders(
    paths: Iterable[Path], source: str | None = None, say: Callable[[str], None] | None = None
) -> list[TaskFolder]:
    """Find tasks: each path itself if it is a task, else the tasks below it, sorted by name.

    A folder without any task counts as a broken task. Skips folders whose names begin with "." or "_",
    and folders that hold jobs or trials.

    Args:
        source: the data set's name; default: the name of the folder that contains it.
        say: gets a line for each folder of jobs or trials, and each row that is no task.

    Raises:
        ConfigError: a path is neither a folder nor a file of tasks, or a folder that is empty or holds
            results only.
    """
    found: list[tuple[Path, str]] = []
    for given in paths:
        path, name = given, source
        if given.is_file():
            path, name = unpacked(given, say), source or given.name.split(".")[0]
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder of Harbor tasks")
        root = path.resolve()
        if _is_task(path):
            found.append((path, name or root.parent.name))
            continue
        inner = _subfolders(path)
        if not inner:
            raise ConfigError(f"{path}: neither a Harbor task nor a folder of them")
        below = {one: _tasks_below(one, _DEEPEST - 1) for one in inner}
        results = [one for one, tasks in below.items() if not tasks and _holds_results(one)]
        if results == inner or _is_result(path):
            raise ConfigError(
                f"{path}: holds results of jobs and no Harbor task; read them with `harbor results`"
            )
        for one in results:
            del below[one]
            if say is not None:
                say(f"ignored {one}: it holds results of jobs and no task")
        inside = [task for one, tasks in below.items() for task in tasks or [one]]
        found += [(one, name or root.name) for one in sorted(inside, key=_sorting)]
    labels = _labels([path for path, _ in found])
    return [
        TaskFolder(path=path, label=label, source=name)
        for (path, name), label in zip(found, labels, strict=True)
    ]


def _holds_results(path: Path) -> bool:
    """Return whether a folder without tasks is a job's or a trial's, or contains one."""
    return _is_result(path) or any(
        _is_result(below) or any(map(_is_result, _subfolders(below))) for below in _subfolders(path)
    )


def _is_result(path: Path) -> bool:
    return not _is_task(path) and all((path / name).is_file() for name in _RESULTS)


def _is_task(path: Path) -> bool:
    return (path / CONFIG_FILE).exists() or (path / INSTRUCTION_FILE).exists()


def _subfolders(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if one.name[0] not in "._" and one.is_dir())


def _tasks_below(path: Path, depth: int) -> list[Path]:
    """Return the tasks at or below a folder."""
    if _is_task(path):
        return [path]
    if depth == 0 or _is_result(path):
        return []
    inner = [one for one in _subfolders(path) if one.name not in _PARTS]
    return [task for one in inner for task in _tasks_below(one, depth - 1)]


def _name_parts(path: Path) -> tuple[str, ...]:
    """Return the folders that name a task, without the digest that ends a package's path."""
    parts = path.resolve().parts[1:]
    return parts[:-1] if len(parts) > 1 and _DIGEST.fullmatch(parts[-1]) else parts


def _sorting(path: Path) -> tuple[str, str]:
    return _name_parts(path)[-1], str(path)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Return a unique name for each path, with more of the path if shorter names collide."""
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
    verifier_env: Mapping[str, str] | None = None,
    source: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[Task | Refused]:
    """Find task folders, then yield tasks and refused folders, reading each lazily.

    Args:
        environ: the variables of this machine that tasks may have (`passed_variables`); a task that
            needs another one is refused. None passes none, and skips this check.
        oracle: whether the solutions will run, so that their variables are checked too.
        verifier_env: see `check_env`.
        source, say: see `task_folders`.

    Raises:
        ConfigError: as `task_folders`.
    """
    folders = task_folders(paths, source, say)

    def read(folder: TaskFolder) -> Task | Refused:
        try:
            task = replace(load_task(folder.path), environ=environ or {})
            if environ is not None:
                check_env(task, oracle=oracle, verifier_env=verifier_env)
        except InvalidTask as error:
            return Refused(path=folder.path, reason=str(error), label=folder.label)
        return replace(task, label=folder.label, source=folder.source)

    return map(read, folders)
