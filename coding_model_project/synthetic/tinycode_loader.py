"""tinycode as a data set by name. Generated, so there is nothing to look for."""

from __future__ import annotations

from collections.abc import Iterator

from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.data.loaders.table import split_word
from coding_model_project.synthetic.tinycode import VERSION, generate
from coding_model_project.synthetic.tinycode.mbpp_form import in_asserts
from coding_model_project.types import Problem


def tasks(place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """All tasks; see `base.Loader.items`."""
    trail.origins.append(f"generator version {VERSION}, seed 0")
    wanted = split_word(place.split) if place.split else None
    for task in generate().tasks:
        if wanted in (None, task.problem.split):
            yield task.problem


def tasks_in_asserts(place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """The functions only, tested by assertions as MBPP's are; ids and statements are the same."""
    trail.origins.append(f"generator version {VERSION}, seed 0")
    wanted = split_word(place.split) if place.split else None
    for task in generate().tasks:
        if wanted in (None, task.problem.split) and not task.uses_stdin:
            yield in_asserts(task.problem)
