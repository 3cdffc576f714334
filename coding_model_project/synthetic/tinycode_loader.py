"""tinycode as a data set by name. Generated, so there is nothing to look for."""

from __future__ import annotations

from collections.abc import Iterator

from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.data.loaders.table import split_word
from coding_model_project.synthetic.tinycode import VERSION, generate
from coding_model_project.synthetic.tinycode.mbpp_form import in_asserts
from coding_model_project.types import Problem


def problems(name: str, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """The tasks; see `base.LoaderByName`.

    Args:
        name: `tinycode_asserts` has the functions only, tested by assertions as MBPP's are; ids and
            statements are the same.
    """
    as_asserts = name == "tinycode_asserts"
    trail.origins.append(f"generator version {VERSION}, seed 0")
    wanted = split_word(place.split) if place.split else None
    for task in generate().tasks:
        if wanted not in (None, task.problem.split) or (as_asserts and task.uses_stdin):
            continue
        yield in_asserts(task.problem) if as_asserts else task.problem
