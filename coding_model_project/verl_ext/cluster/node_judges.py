"""A judge on every node of a Ray cluster, as one judge."""

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
    CodingModelError,
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
from coding_model_project.verl_ext.cluster.nodes import Node, alive_nodes, first_line, pinned

Join = Callable[[], AbstractContextManager[None]]
"""Joins the cluster (`joining.joined`); called when the judge is opened."""

_PING_EVERY_S, _PING_WITHIN_S = 20.0, 60.0
"""A judge that hangs is as good as dead, and Ray does not know it."""


class RayNode:
    """One node's judge, as the driver calls it: `grading.node_pool.Node`.

    Args:
        cpus: that Ray counts there.
        at_once: as of `Node`; None is twice the programs that its judge runs together: one half runs, the
            other is there when those end.
    """

    def __init__(
        self, node_id: str, name: str, cpus: int, plan: JudgePlan, at_once: int | None
    ) -> None:
        self.name = name
        self.at_once = at_once or 1
        self.facts: NodeFacts | None = None
        """What it judges by; set for all nodes alike before any work."""
        self._node_id, self._cpus, self._plan, self._fixed = node_id, cpus, plan, at_once
        self._actor: Any = None
        self._numbers = itertools.count()
        self._sent: dict[str, tuple[Problem, int, asyncio.Future[None]]] = {}

    async def open(self) -> NodeFacts:
        """Start the judge, or start it anew.

        Raises:
            SandboxError: it does not judge, or the node is gone.
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
        self.at_once = self._fixed or 2 * facts.at_once
        return facts

    async def revive(self) -> None:
        """See `grading.node_pool.Node`."""
        facts = await self.open()
        if self.facts is not None and (difference := _difference(facts, self.facts)):
            raise SandboxError(f"it would judge differently: it has {difference}")

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
        problems: Sequence[Problem],
        found: Sequence[Sequence[Fault]],
        mutants: int,
        repeats: int,
    ) -> Preflight:
        """See `data.quality.preflight.preflight`."""
        outcome = await self._call("preflight", problems, found, mutants, repeats)
        if isinstance(outcome, UngradableError):
            raise outcome
        return outcome

    async def watch(self) -> None:
        """End the judge's process when it does not answer, so that what waits for it goes elsewhere."""
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
                pass  # whoever calls it next, or waits for it, gets this too

    def close(self) -> None:
        """End the judge's process, and with it all that it runs."""
        if self._actor is not None:
            with suppress(RayError):
                ray.kill(self._actor)

    async def _number(self, problem: Problem) -> int:
        """The number by which the node knows a problem, which is sent there once."""
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
            SandboxError: its answer is one, or its process or node is gone.
        """
        actor = self._actor
        if actor is None:
            raise SandboxError("its judge is gone")
        try:
            outcome = await getattr(actor, method).remote(*arguments)
        except RayTaskError as error:
            if isinstance(error.cause, CodingModelError):
                raise error.cause from None
            raise
        except RayError as error:
            if self._actor is actor:
                self.close()  # it may be alive, and only out of reach for a moment
                self._actor = None
            raise SandboxError(f"its judge died: {first_line(error)}") from None
        if isinstance(outcome, SandboxError):
            raise outcome
        if isinstance(outcome, OSError):
            raise SandboxError(str(outcome)) from outcome
        return outcome


@asynccontextmanager
async def open_pool(
    plan: JudgePlan, *, join: Join, say: Callable[[str], None], at_once: int | None = None
) -> AsyncIterator[NodePool[RayNode]]:
    """Start a judge on every node, and make sure that all judge alike; end them on leaving.

    Args:
        at_once: as of `RayNode`.

    Raises:
        ClusterError: the cluster cannot be joined, or its nodes would judge differently.
        SandboxError: no node judges.
        ConfigError: the sandbox is not known.
    """
    with ExitStack() as stack:
        stack.enter_context(join())
        alive = [one for one in alive_nodes() if int(one.cpus)]
        nodes = [
            RayNode(one.id, name, int(one.cpus), plan, at_once)
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
    stop_on_timeout: bool = False,
    join: Join,
    say: Callable[[str], None],
) -> AsyncIterator[Graders]:
    """Open the graders of a configuration on every node: `grading.judge.OpenJudge`, but for `join`.

    Raises:
        ClusterError, SandboxError, ConfigError: as `open_pool`.
    """
    plan = JudgePlan(
        sandbox=sandbox,
        bare=style is PromptStyle.bare,
        stop_early=stop_early,
        stop_on_timeout=stop_on_timeout,
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
    """Open a node's judge; the error of one that does not judge.

    Raises:
        ConfigError: the node lacks what the configuration names; names the node.
    """
    try:
        return await node.open()
    except SandboxError as error:
        return error
    except ConfigError as error:
        raise ConfigError(f"{node.name}: {error}") from error


def _agree(nodes: Sequence[RayNode], opened: Sequence[NodeFacts | SandboxError]) -> None:
    """Make sure that all nodes judge alike, those too that are to be had back later.

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
                f"install the same on both, or take one out of the cluster (`ray stop`)"
            )
    for node in nodes:
        node.facts = agreed


def _difference(here: NodeFacts, there: NodeFacts) -> str | None:
    """What two nodes' verdicts would differ by."""
    pairs = ((here.identity, there.identity), (here.versions, there.versions))
    return next((f"{one}, not {other}" for one, other in pairs if one != other), None)


def _names(nodes: Sequence[Node]) -> list[str]:
    """Return the nodes' hosts, with ports where a host has several nodes."""
    hosts = [node.host for node in nodes]
    return [
        node.host if hosts.count(node.host) == 1 else f"{node.host}:{node.port}" for node in nodes
    ]
