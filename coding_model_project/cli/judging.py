"""Judging of many programs for commands: on this machine or all nodes of a cluster, with a journal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from coding_model_project.cli.common import embedded_sandbox, warn
from coding_model_project.cli.options import Resumable
from coding_model_project.errors import SandboxError
from coding_model_project.extras import extra
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.progress import Advance
from coding_model_project.sandbox.sandbox_config import SandboxConfig

if TYPE_CHECKING:
    from coding_model_project.data.quality.faults import Fault
    from coding_model_project.data.quality.preflight import Check, Preflight
    from coding_model_project.evaluation.journal import KeptResults
    from coding_model_project.grading.judge import Graders
    from coding_model_project.grading.node_pool import NodePool
    from coding_model_project.types import Problem
    from coding_model_project.verl_ext.cluster.node_judges import RayNode


def judge_on_cluster(
    sandbox: SandboxConfig, address: str | None, *, bare: bool, stop_early: bool
) -> AbstractAsyncContextManager[Graders]:
    """Return an unopened judge on every node.

    Args:
        sandbox: each node's sandbox.
        address: value of `--ray-address`.

    Raises:
        ConfigError: no address is given or set, or Ray is not installed.
    """
    with extra("train"):
        from coding_model_project.verl_ext.cluster.node_judges import open_node_judges

    return open_node_judges(
        sandbox,
        style=PromptStyle.bare if bare else PromptStyle.fenced,
        stop_early=stop_early,
        join=_joins(address),
        say=warn,
    )


def pool_on_cluster(
    sandbox: SandboxConfig, address: str | None
) -> AbstractAsyncContextManager[NodePool[RayNode]]:
    """Return an unopened pool of nodes that check problems.

    Raises:
        ConfigError: as `judge_on_cluster`.
    """
    with extra("train"):
        from coding_model_project.verl_ext.cluster.node_judge import JudgePlan
        from coding_model_project.verl_ext.cluster.node_judges import open_pool

    plan = JudgePlan(sandbox=sandbox, bare=False, stop_early=True, stop_at_limit=False)
    return open_pool(plan, join=_joins(address), say=warn)


def _joins(address: str | None) -> partial[AbstractContextManager[None]]:
    from coding_model_project.verl_ext.cluster.ray_driver import head_address, joined

    return partial(joined, head_address(address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checking:
    """Settings of a preflight."""

    sandbox: SandboxConfig
    where: Resumable
    mutants: int = 0
    repeats: int = 1


async def run_preflight(problems: Sequence[Problem], how: Checking, advance: Advance) -> Preflight:
    """Check problems (`data.quality.preflight`).

    Args:
        advance: called once per problem.

    Raises:
        SandboxError: some problems could not be checked; the journal has the results of the others.
        ClusterError: the cluster cannot be used.
    """
    from coding_model_project.data.quality.preflight import check_all
    from coding_model_project.evaluation.journal import kept_results

    with kept_results(how.where.journal) as kept:
        if kept.known:
            warn(f"resuming with {len(kept.known)} results")
        async with (_on_nodes if how.where.cluster else _here)(how) as opened:
            check = _kept_check(opened, how, kept)
            try:
                return await check_all(problems, check, at_once=opened.at_once, progress=advance)
            except SandboxError as error:
                raise SandboxError(
                    f"{error}; to check only those, repeat the command with --journal FILE"
                ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """A way to check problems."""

    check: Check
    sandbox: str
    """`Sandbox.identity`."""
    at_once: int
    """Maximum number of problems checked at once."""


@asynccontextmanager
async def _here(how: Checking) -> AsyncIterator[_Opened]:
    from coding_model_project.data.quality.preflight import AT_ONCE, open_checker
    from coding_model_project.data.quality.reach import remember

    async with (
        embedded_sandbox(how.sandbox) as sandbox,
        open_checker(sandbox) as checker,
    ):

        async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
            result = await checker.check(
                problem, found, mutants_per_problem=how.mutants, repeats=how.repeats
            )
            remember(problem, result, sandbox.identity)
            return result

        yield _Opened(check=check, sandbox=sandbox.identity, at_once=AT_ONCE)


@asynccontextmanager
async def _on_nodes(how: Checking) -> AsyncIterator[_Opened]:
    async with pool_on_cluster(how.sandbox, how.where.ray_address) as pool:
        facts = pool.nodes[0].facts
        assert facts is not None
        warn(f"checking on {len(pool.nodes)} nodes ({facts.sandbox})")

        async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
            return await pool.run(
                problem.id,
                lambda node: node.preflight(problem, found, how.mutants, how.repeats),
            )

        yield _Opened(check=check, sandbox=facts.sandbox, at_once=sys.maxsize)


def _kept_check(opened: _Opened, how: Checking, kept: KeptResults) -> Check:
    """Return a check that takes results from a journal, and stores new ones there."""
    from pydantic import TypeAdapter

    from coding_model_project.data.quality.preflight import Preflight, result_key
    from coding_model_project.grading.base import GRADER_VERSION

    row_type = TypeAdapter(Preflight)
    settings = f"{GRADER_VERSION} {opened.sandbox} {how.mutants} {how.repeats}"

    async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
        key = result_key(problem, found, settings)
        if (row := kept.known.get(key)) is not None:
            return row_type.validate_python(row)
        result = await opened.check(problem, found)
        if not problem.task:  # a folder, which may change
            kept.keep(key, asdict(result))
        return result

    return check
