"""The loader of tinycode as a data set by name. It generates the tasks, so it needs no files."""

from __future__ import annotations

from collections.abc import Iterator

from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.synthetic.tinycode import VERSION, generate
from coding_model_project.synthetic.tinycode.generator import in_asserts
from coding_model_project.types import Problem


def problems(name: str, _place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """Yield the tasks; see `base.LoaderByName`.

    Args:
        name: `tinycode_asserts` gives only the functions, tested by assertions as in MBPP; ids and
            statements are the same.
    """
    as_asserts = name == "tinycode_asserts"
    trail.origins.append(f"generator version {VERSION}, seed 0")
    for task in generate().tasks:
        if as_asserts and task.uses_stdin:
            continue
        yield in_asserts(task.problem) if as_asserts else task.problem
