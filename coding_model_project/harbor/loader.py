"""Harbor tasks as problems: the instruction is the statement, and the task's verifier judges.

Tasks that share a name get ids by their labels (`Task.label`). A task that is bad is set aside with its
reason, as is one in several steps, which has no single statement. What a task may be used for is the
strictest of what its name, its metadata and its split say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from coding_model_project.data.governance import Role, role
from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.data.loaders.table import split_word
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from coding_model_project.types import Problem

EXPORTED = "problem"
"""The key under [metadata] by which a task that was made of a problem of ours names it."""


def problems(name: str, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """The tasks of a folder; see `data.loaders.base.LoaderByName`."""
    if place.path is None:
        raise ConfigError(f"{name}: give its folder of tasks: {name}=PATH, or --path PATH")
    path = Path(place.path)
    trail.origins.append(str(path))
    known: set[str] = set()
    for read in read_tasks([path]):
        if isinstance(read, Refused):
            yield SetAside(where=str(read.path), reason=read.reason)
        elif read.has_steps:
            yield SetAside(where=str(read.path), reason="several steps have no one statement")
        else:
            problem = _problem(read, name)
            if problem.id in known:
                problem = replace(problem, id=f"{name}/{read.label}")
                trail.notes.append(f"{read.path} has another task's name; its id is {problem.id}")
            known.add(problem.id)
            if place.split in (None, problem.split, split_word(problem.split)):
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
    """Return the reference program: an exported task's file, or a solution that is one script.

    A solution of several files is no program that a completion could be compared with.
    """
    folder = task.path / "solution"
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    name = "solution.py" if is_exported else "solve.sh"
    if name not in names or (len(names) > 1 and not is_exported):
        return ()
    try:
        program = task.files.text(folder / name)
    except ValueError:  # not text: it solves the task all the same
        return ()
    return (program.partition("\n")[2] if program.startswith("#!") else program,)


def _split(task: Task, identity: str) -> str:
    """As the metadata say, "train" if they do not; "test" or "validation" where a name forbids more."""
    said = task.config.metadata.get("split")
    split = said if isinstance(said, str) and said else "train"
    names = (identity, identity.split("/")[0], task.path.name)
    roles = {role(name, split) for name in names}
    strictest = next(one for one in (Role.test, Role.validation, Role.train) if one in roles)
    return split if strictest.may_train else str(strictest)
