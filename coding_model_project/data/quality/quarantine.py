"""Files of problems that failed a preflight, with the reasons, and of those that passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import orjson

from coding_model_project.atomic import write_lines
from coding_model_project.data.loaders.base import SetAside
from coding_model_project.data.problems import problem_line, write_problems
from coding_model_project.types import Problem

Reasons = Mapping[str, Sequence[str]]
"""The reasons by the id of each unfit problem."""


def write_quarantine(
    path: Path, problems: Iterable[Problem], quarantined: Reasons, set_aside: Iterable[SetAside]
) -> None:
    """Write {"id", "reasons", "problem"} per problem, and {"where", "reasons"} per row set aside."""
    unfit = (
        {
            "id": problem.id,
            "reasons": quarantined[problem.id],
            "problem": orjson.Fragment(problem_line(problem).rstrip()),
        }
        for problem in problems
        if problem.id in quarantined
    )
    aside = ({"where": one.where, "reasons": [one.reason]} for one in set_aside)
    write_lines(path, chain(unfit, aside))


def write_passed(path: Path, problems: Iterable[Problem], quarantined: Reasons) -> None:
    """Write the problems without faults."""
    write_problems(path, (problem for problem in problems if problem.id not in quarantined))
