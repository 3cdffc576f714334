"""A problem with a Harbor task goes to Harbor's grader, which starts with the first such problem."""

from dataclasses import replace

import pytest

from coding_model_project.errors import DataError, HarborError
from coding_model_project.grading.base import AUTO, harbor_identity
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.judge import GraderByProblem
from coding_model_project.grading.kinds import Parts
from coding_model_project.grading.limiter import Limiter
from coding_model_project.harbor import task_grader
from coding_model_project.harbor.grader import HarborGrader
from tests.fakes import FakeSandbox, stdin_problem

PROBLEM = stdin_problem(("", "1"))


def by_problem() -> GraderByProblem:
    executed = ExecutionGrader(FakeSandbox(), stop_early=True)
    return GraderByProblem(Parts(execution=executed, limiter=Limiter(1), tasks=task_grader))


async def test_each_problem_goes_to_its_grader(tmp_path):
    async with by_problem() as grader:
        assert (await grader.grade_code(PROBLEM, "1")).passed
        with pytest.raises(HarborError, match=str(tmp_path)):
            await grader.grade_code(replace(PROBLEM, task=str(tmp_path)), "1")


async def test_without_its_grader_a_task_is_ungradable(tmp_path):
    execution = ExecutionGrader(FakeSandbox(), stop_early=True)
    async with GraderByProblem(Parts(execution=execution, limiter=Limiter(1))) as grader:
        with pytest.raises(DataError, match=r"tasks=harbor\.task_grader"):
            await grader.grade_code(replace(PROBLEM, task=str(tmp_path)), "1")


def test_the_identity_names_all_graders():
    assert HarborGrader(limiter=Limiter(1)).identity == harbor_identity(AUTO)
    assert f"+{harbor_identity(AUTO)}+math-verify " in by_problem().identity
