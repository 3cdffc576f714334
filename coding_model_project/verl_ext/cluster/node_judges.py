"""A judge that spreads work over judges on every node of a Ray cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from coding_model_project.concurrency import each
from coding_model_project.data.quality.faults import Fault
from coding_model_project.data.quality.preflight import Preflight
from coding_model_project.errors import (
    ClusterError,
    ConfigError,
    SandboxError,
    UngradableError,
)
from coding_model_project.grading.base import Outcome
from coding_model_project.grading.judge import Graders
from coding_model_project.grading.limiter import CircuitBreaker
from coding_model_project.grading.node_pool import NodePool
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.spread import SpreadGrader
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Problem
from coding_model_project.verl_ext.cluster.node_judge import JudgePlan, NodeFacts, NodeJudge
from coding_model_project.verl_ext.cluster.nodes import (
    Node,
    alive_nodes,
    answer_of,
    first_line,
    pinned,
)

Join = Callable[[], AbstractContextManager[None]]
"""A function that joins the cluster (`ray_driver.joined`); opening the judge calls it."""

_PING_EVERY_S, _PING_WITHIN_S = 20.0, 60.0
"""Interval and time-out of pings. Ray does not notice a judge that hangs."""
_OPEN_WITHIN_S = 300.0
"""Time-out of a judge's first start, which may read all packages from a slow disk."""


class RayNode:
    """The driver's client of one node's judge, as `grading.node_pool.Node`.

    Args:
        cpus: CPUs that Ray counts on the node.
    """

    def __init__(self, node_id: str, name: str, cpus: int, plan: JudgePlan) -> None:
        self.name = name
        self.at_once = 1
        """As in `Node`: twice the number of programs that the judge runs at once, so that the next ones
        are already there when those end."""
        self.facts: NodeFacts | None = None
        """Facts that all nodes share; set before any work."""
        self._node_id, self._cpus, self._plan = node_id, cpus, plan
        self._actor: Any = None
        self._numbers = itertools.count()
        self._sent: dict[str, tuple[Problem, int, asyncio.Future[None]]] = {}

    async def open(self) -> NodeFacts:
        """Start or restart the judge.

        Raises:
            SandboxError: the judge does not work, or the node is gone.
        """
        if self._actor is None:
            self._sent = {}
            options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 1000}
            self._actor = (
                ray.remote(NodeJudge)
                .options(**pinned(self._node_id), **options)
                .remote(self._plan, self._cpus)
            )
        facts: NodeFacts = await self._call("open")
        self.at_once = 2 * facts.at_once
        return facts

    async def revive(self) -> None:
        """See `grading.node_pool.Node`."""
        facts = await self.open()
        if self.facts is not None and (difference := _difference(facts, self.facts)):
            raise SandboxError(f"the node would judge differently: it has {difference}")

    async def grade(self, problem: Problem, completion: str, *, public: bool) -> Outcome:
        """See `grading.spread.JudgingNode`."""
        return await self._call("grade", await self._number(problem), completion, public)

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str, public: bool
    ) -> Outcome:
        """See `grading.spread.JudgingNode`."""
        return await self._call("grade_code", await self._number(problem), code, extraction, public)

    async def preflight(
        self,
        problem: Problem,
        found: Sequence[Fault],
        mutants: int,
        repeats: int,
    ) -> Preflight:
        """See `data.quality.preflight.Checker.check`."""
        outcome = await self._call("preflight", problem, found, mutants, repeats)
        if isinstance(outcome, UngradableError):
            raise outcome
        return outcome

    async def watch(self) -> None:
        """End the judge's process if it stops answering, so that its work goes to other nodes."""
        while True:
            await asyncio.sleep(_PING_EVERY_S)
            if (actor := self._actor) is None:
                continue
            try:
                async with asyncio.timeout(_PING_WITHIN_S):
                    await actor.ping.remote()
            except TimeoutError:
                ray.kill(actor)
            except RayError:
                pass  # callers of the actor get this error too

    def close(self) -> None:
        """End the judge's process and the programs that it runs."""
        if self._actor is not None:
            with suppress(RayError):
                ray.kill(self._actor)

    async def _number(self, problem: Problem) -> int:
        """Return the node's number of a problem, and send the problem on first use."""
        known = self._sent.get(problem.id)
        if known is None or known[0] is not problem:
            number = next(self._numbers)
            sending = asyncio.ensure_future(self._call("take", number, problem))
            known = self._sent[problem.id] = problem, number, sending
        await asyncio.shield(known[2])
        return known[1]

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the actor.

        Raises:
            SandboxError: the call returns one, or the actor's process or node is gone.
        """
        actor = self._actor
        if actor is None:
            raise SandboxError("its judge has ended")
        try:
            outcome = await answer_of(getattr(actor, method).remote(*arguments))
        except RayTaskError:
            raise
        except RayError as error:
            if self._actor is actor:
                self.close()  # it may be alive and only out of reach for a moment
                self._actor = None
            raise SandboxError(f"its judge died: {first_line(error)}") from None
        if isinstance(outcome, SandboxError):
            raise outcome
        if isinstance(outcome, OSError):
            raise SandboxError(str(outcome)) from outcome
        return outcome


@asynccontextmanager
async def open_pool(
    plan: JudgePlan, *, join: Join, say: Callable[[str], None]
) -> AsyncIterator[NodePool[RayNode]]:
    """Start a judge on every node, make sure that all judge alike, and end them on exit.

    Raises:
        ClusterError: the cluster cannot be joined, or its nodes would judge differently.
        SandboxError: no node judges.
        ConfigError: the sandbox is unknown, or a node lacks a path that the configuration names.
    """
    with ExitStack() as stack:
        stack.enter_context(join())
        alive = [one for one in alive_nodes() if int(one.cpus)]
        nodes = [
            RayNode(one.id, name, int(one.cpus), plan)
            for one, name in zip(alive, _names(alive), strict=True)
        ]
        if not nodes:
            raise ClusterError("the Ray cluster has no node with a CPU; see `ray status`")
        for node in nodes:
            stack.callback(node.close)
        opened = await each(nodes, _opened)
        failed = [
            (node, one)
            for node, one in zip(nodes, opened, strict=True)
            if isinstance(one, SandboxError)
        ]
        if len(failed) == len(nodes):
            raise SandboxError(f"no node judges: {nodes[0].name}: {failed[0][1]}")
        _agree(nodes, opened)
        breaker = CircuitBreaker(max_rate=plan.sandbox.max_failure_rate)
        async with NodePool(nodes, breaker=breaker, say=say) as pool:
            for node, error in failed:
                pool.leave_out(node, error)
            watching = [asyncio.ensure_future(node.watch()) for node in nodes]
            try:
                yield pool
            finally:
                for task in watching:
                    task.cancel()


@asynccontextmanager
async def open_node_judges(
    sandbox: SandboxConfig,
    *,
    style: PromptStyle,
    stop_early: bool,
    stop_at_limit: bool = False,
    join: Join,
    say: Callable[[str], None],
) -> AsyncIterator[Graders]:
    """Open the graders of a configuration on every node: `grading.judge.OpenJudge` with `join`.

    Raises:
        ClusterError, SandboxError, ConfigError: as `open_pool`.
    """
    plan = JudgePlan(
        sandbox=sandbox,
        bare=style is PromptStyle.bare,
        stop_early=stop_early,
        stop_at_limit=stop_at_limit,
    )
    async with open_pool(plan, join=join, say=say) as pool:
        facts = pool.nodes[0].facts
        assert facts is not None
        places = sum(node.at_once // 2 for node in pool.nodes)
        say(f"judging on {len(pool.nodes)} nodes, {places} programs at once ({facts.identity})")
        identity = facts.identity
        yield Graders(
            SpreadGrader(pool, identity=identity, public=False),
            SpreadGrader(pool, identity=f"{identity}/public", public=True),
        )


async def _opened(node: RayNode) -> NodeFacts | SandboxError:
    """Open a node's judge, and return its facts, or its error if it does not judge.

    Raises:
        ConfigError: the node lacks a path that the configuration names; names the node.
    """
    try:
        async with asyncio.timeout(_OPEN_WITHIN_S):
            return await node.open()
    except TimeoutError:
        node.close()
        return SandboxError(f"no judge started there within {_OPEN_WITHIN_S:.0f} s")
    except SandboxError as error:
        return error
    except ConfigError as error:
        raise ConfigError(f"{node.name}: {error}") from error


def _agree(nodes: Sequence[RayNode], opened: Sequence[NodeFacts | SandboxError]) -> None:
    """Make sure that all nodes judge alike, and record the shared facts on each.

    Nodes that do not judge yet are compared when they come back.

    Raises:
        ClusterError: verdicts would depend on the node.
    """
    known = [
        (node, facts)
        for node, facts in zip(nodes, opened, strict=True)
        if isinstance(facts, NodeFacts)
    ]
    first, agreed = known[0]
    for node, facts in known[1:]:
        if difference := _difference(facts, agreed):
            raise ClusterError(
                f"nodes would judge differently: {node.name} has {difference}, as {first.name} has; "
                "install the same version on both, or take one out of the cluster (`ray stop`)"
            )
    for node in nodes:
        node.facts = agreed


def _difference(facts: NodeFacts, other: NodeFacts) -> str | None:
    """Return the first difference that could make two nodes' verdicts differ; None if there is none."""
    pairs = ((facts.identity, other.identity), (facts.versions, other.versions))
    return next((f"{mine}, not {theirs}" for mine, theirs in pairs if mine != theirs), None)


def _names(nodes: Sequence[Node]) -> list[str]:
    """Return the nodes' hosts, with ports where a host has several nodes."""
    hosts = [node.host for node in nodes]
    return [
        node.host if hosts.count(node.host) == 1 else f"{node.host}:{node.port}" for node in nodes
    ]
