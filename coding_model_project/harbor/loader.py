"""Harbor tasks as problems: the instruction is the statement, and the task's verifier judges.

Tasks that share a name get ids from their labels (`Task.label`). Invalid tasks are set aside with a
reason; so are tasks with several steps, which have no single statement. A task's role is the strictest
that its name, metadata and split imply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from coding_model_project.types import Problem

EXPORTED = "problem"
"""The key under [metadata] that names the problem from which a task was exported."""


def problems(name: str, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """Yield the tasks of a folder as problems; see `data.loaders.base.LoaderByName`."""
    if place.path is None:
        raise ConfigError(f"{name}: the folder of tasks is missing; pass {name}=PATH")
    path = Path(place.path)
    trail.origins.append(str(path))
    known: set[str] = set()
    for read in read_tasks([path], say=trail.notes.append):
        if isinstance(read, Refused):
            yield SetAside(where=str(read.path), reason=read.reason)
        elif read.has_steps:
            yield SetAside(where=str(read.path), reason="several steps have no single statement")
        else:
            problem = _problem(read, name)
            if problem.id in known:
                problem = replace(problem, id=f"{name}/{read.label}")
                trail.notes.append(
                    f"{read.path} has the same name as another task; its id is {problem.id}"
                )
            known.add(problem.id)
            yield problem


def _problem(task: Task, name: str) -> Problem:
    exported = task.config.metadata.get(EXPORTED)
    identity = exported if isinstance(exported, str) else task.name
    return Problem(
        id=identity if "/" in identity else f"{name}/{identity}",
        split=_split(task, identity),
        statement=task.instruction,
        tests=(),
        language="python" if exported else "bash",
        gold=_gold(task, is_exported=bool(exported)),
        task=str(task.path),
    )


def _gold(task: Task, *, is_exported: bool) -> tuple[str, ...]:
    """Return the reference program: an exported task's file, or a solution that is a single script.

    Completions cannot be compared with a solution of several files.
    """
    folder = task.path / "solution"
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    name = "solution.py" if is_exported else "solve.sh"
    if name not in names or (len(names) > 1 and not is_exported):
        return ()
    try:
        program = task.files.text(folder / name)
    except ValueError:  # a binary solution still solves the task
        return ()
    return (program.partition("\n")[2] if program.startswith("#!") else program,)


def _split(task: Task, identity: str) -> str:
    """Return the split of the metadata, default "train"; "test" or "validation" if a name requires it."""
    stated = task.config.metadata.get("split")
    split = stated if isinstance(stated, str) and stated else "train"
    names = (identity, identity.split("/")[0], task.path.name)
    roles = {role(name, split) for name in names}
    strictest = next(one for one in (Role.test, Role.validation, Role.train) if one in roles)
    return split if strictest.may_train else str(strictest)
