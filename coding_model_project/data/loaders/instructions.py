"""Verifiable instructions of IFEval, IFBench and training sets of the same form.

IFEval: Zhou et al. 2023 (arXiv 2311.07911). IFBench, and training prompts with up to five constraints:
Pyatkin et al. 2025 (arXiv 2507.02833).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coding_model_project.data.loaders.base import Unusable
from coding_model_project.errors import DataError
from coding_model_project.types import Instruction


def instructions_of(kinds: Iterable[Any], arguments: Iterable[Any]) -> tuple[Instruction, ...]:
    """Convert the two columns of a row; null arguments belong to other kinds.

    Raises:
        Unusable: a kind is unknown, or its arguments do not fit.
    """
    from coding_model_project.grading.instructions import check_arguments

    found = []
    for kind, given in zip(kinds, arguments, strict=True):
        own = {name: one for name, one in (given or {}).items() if one is not None}
        try:
            check_arguments(str(kind), own)
        except DataError as error:
            raise Unusable(str(error)) from error
        found.append(Instruction(str(kind), own))
    if not found:
        raise Unusable("no instructions")
    return tuple(found)
