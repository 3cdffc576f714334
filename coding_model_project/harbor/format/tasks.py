"""Many tasks, read one by one: a bad one is set aside with its reason, and the rest go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.failures import InvalidTask
from coding_model_project.harbor.format.task import CONFIG_FILE, Task, check_env, load_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A folder that is no usable task."""

    path: Path
    reason: str


def task_folders(paths: Iterable[Path]) -> list[Path]:
    """The tasks' folders: each path itself if it holds a task.toml, else its subfolders by name.

    Subfolders whose name begins with "." or "_" are no tasks.

    Raises:
        ConfigError: a path is no folder, or a folder without subfolders.
    """
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: no such folder of Harbor tasks")
        inner = sorted(one for one in path.iterdir() if one.is_dir() and one.name[0] not in "._")
        if (path / CONFIG_FILE).exists() or (path / "instruction.md").exists():
            found.append(path)
        elif inner:
            found += inner
        else:
            raise ConfigError(f"{path}: neither a Harbor task nor a folder of them")
    return found


def read_tasks(
    paths: Iterable[Path], environ: Mapping[str, str] | None = None, *, oracle: bool = False
) -> Iterator[Task | Refused]:
    """Tasks and refused folders, each read when it is asked for. Looks for the folders at once.

    Args:
        environ: the host's variables; a task that needs one that is not among them is refused. None
            does not look.
        oracle: whether the solutions will run, whose variables then count too.

    Raises:
        ConfigError: as `task_folders`.
    """
    return _read(task_folders(paths), environ, oracle)


def _read(
    folders: Iterable[Path], environ: Mapping[str, str] | None, oracle: bool
) -> Iterator[Task | Refused]:
    for folder in folders:
        try:
            task = load_task(folder)
            if environ is not None:
                check_env(task, environ, oracle=oracle)
        except InvalidTask as error:
            yield Refused(path=folder, reason=str(error))
        else:
            yield task
