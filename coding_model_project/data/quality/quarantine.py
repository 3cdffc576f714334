"""Files of problems that failed a preflight, with the reasons, and of those that passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from coding_model_project.data.loaders.base import SetAside
from coding_model_project.data.problems import problem_line, write_problems
from coding_model_project.types import Problem

Reasons = Mapping[str, Sequence[str]]
"""The reasons by the id of each unfit problem."""


def write_quarantine(
    path: Path, problems: Iterable[Problem], quarantined: Reasons, set_aside: Iterable[SetAside]
) -> None:
    """Write {"id", "reasons", "problem"} per problem, and {"where", "reasons"} per row set aside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        for problem in problems:
            if problem.id in quarantined:
                row = {
                    "id": problem.id,
                    "reasons": quarantined[problem.id],
                    "problem": orjson.loads(problem_line(problem)),
                }
                file.write(orjson.dumps(row) + b"\n")
        for one in set_aside:
            file.write(orjson.dumps({"where": one.where, "reasons": [one.reason]}) + b"\n")
    partial.replace(path)


def write_passed(path: Path, problems: Iterable[Problem], quarantined: Reasons) -> None:
    """Write the problems without faults."""
    write_problems(path, (problem for problem in problems if problem.id not in quarantined))
