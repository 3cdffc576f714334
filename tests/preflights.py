"""A preflight of several problems on one sandbox, without a journal."""

from collections.abc import Sequence
from functools import partial

from coding_model_project.data.quality.preflight import Preflight, check_all, open_checker
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.types import Problem


async def preflight(
    problems: Sequence[Problem], sandbox: Sandbox, *, mutants_per_problem: int = 0, repeats: int = 1
) -> Preflight:
    """Check problems."""
    async with open_checker(sandbox) as checker:
        check = partial(checker.check, mutants_per_problem=mutants_per_problem, repeats=repeats)
        return await check_all(problems, check)
