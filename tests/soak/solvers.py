"""Solvers for Inspect that use no model: they answer from the data set."""

from collections.abc import Callable

from inspect_ai.model import ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver


@solver
def answer(text: Callable[[str], str]) -> Solver:
    """Answer by the sample's id."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = ModelOutput.from_content("mockllm", text(str(state.sample_id)))
        return state

    return solve


@solver
def gold() -> Solver:
    """Answer with the canonical solution, which is HumanEval's target."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = ModelOutput.from_content("mockllm", state.target.text)
        return state

    return solve


@solver
def broken() -> Solver:
    """Answer with a program that is always wrong."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.output = ModelOutput.from_content("mockllm", "    raise NotImplementedError\n")
        return state

    return solve
