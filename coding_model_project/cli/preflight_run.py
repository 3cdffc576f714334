"""Preflights of commands: on this machine or a cluster, optionally with a journal."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.cli.common import embedded_sandbox, warn
from coding_model_project.cli.on_cluster import pool_on_cluster
from coding_model_project.errors import SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import Advance
from coding_model_project.sandbox.sandbox_config import SandboxConfig

if TYPE_CHECKING:
    from coding_model_project.data.quality.faults import Fault
    from coding_model_project.data.quality.preflight import Check, Preflight
    from coding_model_project.evaluation.kept import KeptResults
    from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOptions:
    """Options of a preflight."""

    mutants: int = 0
    repeats: int = 1
    workers: int | None
    min_tier: Tier
    on_cluster: bool
    address: str | None
    """Value of `--ray-address`."""
    journal: Path | None
    """File that keeps each problem's result."""


async def run_preflight(
    problems: Sequence[Problem], options: PreflightOptions, advance: Advance
) -> Preflight:
    """Check problems (`data.quality.preflight`).

    Args:
        advance: called once per problem.

    Raises:
        SandboxError: some problems could not be checked; the journal has the results of the others.
        ClusterError: the cluster cannot be used.
    """
    from coding_model_project.data.quality.preflight import check_all
    from coding_model_project.evaluation.kept import kept_results

    with kept_results(options.journal) as kept:
        if kept.known:
            warn(f"resuming with {len(kept.known)} results")
        async with (_on_nodes if options.on_cluster else _here)(options) as opened:
            check = _kept_check(opened, options, kept)
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
async def _here(options: PreflightOptions) -> AsyncIterator[_Opened]:
    from coding_model_project.data.quality.preflight import AT_ONCE, open_checker
    from coding_model_project.data.quality.reach import remember

    async with (
        embedded_sandbox(options.workers, options.min_tier) as sandbox,
        open_checker(sandbox) as checker,
    ):

        async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
            result = await checker.check(
                problem, found, mutants_per_problem=options.mutants, repeats=options.repeats
            )
            remember(problem, result, sandbox.identity)
            return result

        yield _Opened(check=check, sandbox=sandbox.identity, at_once=AT_ONCE)


@asynccontextmanager
async def _on_nodes(options: PreflightOptions) -> AsyncIterator[_Opened]:
    sandbox = SandboxConfig(workers=options.workers, min_tier=options.min_tier)
    async with pool_on_cluster(sandbox, options.address) as pool:
        facts = pool.nodes[0].facts
        assert facts is not None
        warn(f"checking on {len(pool.nodes)} nodes ({facts.sandbox})")

        async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
            return await pool.run(
                problem.id,
                lambda node: node.preflight(problem, found, options.mutants, options.repeats),
            )

        yield _Opened(check=check, sandbox=facts.sandbox, at_once=sys.maxsize)


def _kept_check(opened: _Opened, options: PreflightOptions, kept: KeptResults) -> Check:
    """Return a check that takes results from a journal, and stores new ones there."""
    from pydantic import TypeAdapter

    from coding_model_project.data.quality.preflight import Preflight, result_key
    from coding_model_project.grading.base import GRADER_VERSION

    row_type = TypeAdapter(Preflight)
    settings = f"{GRADER_VERSION} {opened.sandbox} {options.mutants} {options.repeats}"

    async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
        key = result_key(problem, found, settings)
        if (row := kept.known.get(key)) is not None:
            return row_type.validate_python(row)
        result = await opened.check(problem, found)
        if not problem.task:  # a folder, which may change
            kept.keep(key, asdict(result))
        return result

    return check
