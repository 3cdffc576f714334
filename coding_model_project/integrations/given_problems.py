"""The adapters' `problems` argument: problems, or a name or path to load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from coding_model_project.api import load
from coding_model_project.data.governance import as_rewarded
from coding_model_project.errors import ConfigError
from coding_model_project.types import Problem

Problems = Iterable[Problem] | str | Path
"""Problems, or a name or path for `api.load`."""


def by_id(problems: Problems) -> dict[str, Problem]:
    """Load problems, and return them by id.

    Raises:
        ConfigError: there are none, two have the same id, or they cannot be found.
        DataError: the file is damaged.
    """
    found: dict[str, Problem] = {}
    for problem in load(problems) if isinstance(problems, str | Path) else problems:
        if problem.id in found:
            raise ConfigError(f"problems: two have the id {problem.id!r}; ids must be unique")
        found[problem.id] = problem
    if not found:
        raise ConfigError("problems: expected at least one problem, got none")
    return found


def for_rewards(problems: Problems) -> dict[str, Problem]:
    """Return problems by id as rewards judge them (`governance.as_rewarded`).

    Raises:
        ConfigError, DataError: as `by_id`.
    """
    return {name: as_rewarded(problem) for name, problem in by_id(problems).items()}


def named(problems: Mapping[str, Problem], problem_id: object, where: str) -> Problem:
    """Return the problem with this id.

    Args:
        where: the source of the id, for the error.
    """
    if not isinstance(problem_id, str) or problem_id not in problems:
        known = next(iter(problems))
        raise ConfigError(
            f"{where}={problem_id!r}: none of the {len(problems)} problems has this id; "
            f"their ids are like {known!r}"
        )
    return problems[problem_id]
