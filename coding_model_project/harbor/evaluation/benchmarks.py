"""Benchmarks by name: folders of Harbor tasks for an evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path

from coding_model_project.data.loaders import data_dir as folder_of_sets
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.environment.base import ImageError
from coding_model_project.harbor.environment.factory import check_supported
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused, read_tasks

OPTION = "--benchmark"


def benchmarks(words: Iterable[str], data_dir: Path) -> dict[str, Path]:
    """Return the folders of `--benchmark NAME[=PATH]` by name; names may be separated by commas.

    Args:
        data_dir: the folder to search for names without a path. "terminal_bench" also finds
            "terminal-bench" and, if there is only one version, "terminal-bench-2.0".

    Raises:
        ConfigError: a name is empty or repeated, or it has no folder.
    """
    found: dict[str, Path] = {}
    split = ([given] if "=" in given else given.split(",") for given in words)
    for word in chain.from_iterable(split):
        name, equals, path = word.partition("=")
        if not name or "/" in name or (equals and not path):
            raise ConfigError(f"{OPTION}={word}: expected NAME or NAME=PATH")
        if name in found:
            raise ConfigError(
                f"{OPTION}={word}: {name} is already {found[name]}; give each name once"
            )
        found[name] = Path(path) if equals else _by_name(name, data_dir)
        if not found[name].is_dir():
            raise ConfigError(f"{OPTION}={word}: {path}: no such folder of Harbor tasks")
    return found


def _by_name(name: str, data_dir: Path) -> Path:
    """Find a benchmark's folder by name.

    Raises:
        ConfigError: there is no such folder, or there are several versions.
    """
    folders = sorted(one for one in data_dir.iterdir() if one.is_dir()) if data_dir.is_dir() else []
    of_name = re.compile(f"{re.escape(_plain(name))}(_v?[0-9][0-9_]*)?")
    matches = [(one, found[1]) for one in folders if (found := of_name.fullmatch(_plain(one.name)))]
    exact = [one for one, version in matches if version is None]
    candidates = exact or [one for one, _ in matches]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        several = ", ".join(one.name for one in candidates)
        raise ConfigError(
            f"{OPTION}={name}: {data_dir} has {several}; choose one by {OPTION} {name}=PATH"
        )
    raise ConfigError(
        f"{OPTION}={name}: no folder of that name in {data_dir.resolve()}; give it by "
        f"{OPTION} {name}=PATH, or its parent by --data-dir or CODING_DATA_DIR"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def runnable_tasks(
    task_dirs: list[Path],
    named: list[str],
    data_dir: Path | None,
    environment: str,
    *,
    limit: int | None,
    passed: Mapping[str, str],
    say: Callable[[str], None],
) -> list[Task]:
    """Return the tasks of folders or benchmarks that can run in an environment, the first of each.

    Args:
        named: values of `--benchmark`.
        environment: name of the environments (`factory.environments_of`).
        limit: maximum number of tasks of all folders, or of each benchmark.
        passed: variables of this machine that tasks may have.
        say: called with a line per task that Harbor or the environments refuse.

    Raises:
        ConfigError: neither or both of folders and benchmarks are given, or no task is runnable.
    """
    if bool(task_dirs) == bool(named):
        raise ConfigError("harbor eval: pass either folders of tasks or --benchmark")
    given: list[tuple[str, str | None, list[Path]]] = []
    if named:
        found = benchmarks(named, folder_of_sets(data_dir))
        given += [(f"{OPTION}={name}", name, [folder]) for name, folder in found.items()]
    else:
        given.append((", ".join(map(str, task_dirs)), None, task_dirs))
    tasks: list[Task] = []
    for label, name, folders in given:
        try:
            read = read_tasks(folders, passed, source=name, say=say)
        except ConfigError as error:
            if name is None:
                raise
            raise ConfigError(f"{label}: {error}") from error
        runnable: list[Task] = []
        for one in read:
            if isinstance(one, Refused):
                say(f"set aside: {one.reason}")
                continue
            try:
                check_supported(environment, one)
            except ImageError as error:
                say(f"set aside: {one.label}: {error}")
                continue
            runnable.append(one)
            for warning in one.warnings:
                say(f"{one.label}: {warning}")
        if not runnable:
            raise ConfigError(f"{label}: no runnable tasks")
        tasks += runnable[:limit]
    return tasks
