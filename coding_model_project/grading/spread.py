"""Graders that run programs on the nodes of a cluster."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from coding_model_project.grading.base import Outcome
from coding_model_project.grading.node_pool import Node, NodePool
from coding_model_project.types import Problem, Verdict


class JudgingNode(Node, Protocol):
    """A node that judges completions and programs."""

    async def grade(self, problem: Problem, completion: str, *, public: bool) -> Outcome:
        """Judge a completion; if the completion itself is ungradable, return the error.

        Raises:
            SandboxError: the node cannot judge.
        """
        ...

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str, public: bool
    ) -> Outcome:
        """Judge a program; see `grade`."""
        ...


_Node = TypeVar("_Node", bound=JudgingNode)


class SpreadGrader(Generic[_Node]):
    """A `grading.base.Grader` and `CodeGrader` whose verdicts come from nodes.

    Args:
        identity: the identity of the nodes' graders.
        public: whether to judge by public tests instead of hidden ones.
    """

    def __init__(self, pool: NodePool[_Node], *, identity: str, public: bool) -> None:
        self._pool = pool
        self._public = public
        self.identity = identity

    async def grade(self, problem: Problem, completion: str) -> Verdict:
        """See `grading.base.Grader`."""
        return _verdict(
            await self._pool.run(
                problem.id, lambda node: node.grade(problem, completion, public=self._public)
            )
        )

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """See `grading.base.CodeGrader`."""
        return _verdict(
            await self._pool.run(
                problem.id,
                lambda node: node.grade_code(
                    problem, code, extraction=extraction, public=self._public
                ),
            )
        )

    def answered_from_memory(self) -> None:
        """See `grading.base.CodeGrader`; each node records it in its own breaker."""


def _verdict(outcome: Outcome) -> Verdict:
    if isinstance(outcome, Verdict):
        return outcome
    raise outcome
