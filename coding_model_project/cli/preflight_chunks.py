"""Preflights of commands: on this machine or a cluster, optionally in journaled chunks."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coding_model_project.cli.common import embedded_sandbox, warn
from coding_model_project.cli.on_cluster import pool_on_cluster
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import Advance
from coding_model_project.sandbox.sandbox_config import SandboxConfig

if TYPE_CHECKING:
    from coding_model_project.data.quality.chunks import Chunk
    from coding_model_project.data.quality.preflight import Preflight
    from coding_model_project.types import Problem

_LOCAL_CHUNKS = 2
"""Chunks at once on this machine, as on a node (`on_cluster`)."""


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
    """File that keeps each chunk's result."""


async def run_preflight(
    problems: Sequence[Problem], options: PreflightOptions, advance: Advance
) -> Preflight:
    """Check problems (`data.quality.preflight`).

    Args:
        advance: called `n_programs` times.

    Raises:
        SandboxError: some problems could not be checked; the journal has the results of the others.
        ClusterError: the cluster cannot be used.
    """
    if options.on_cluster:
        return await _on_nodes(problems, options, advance)
    from coding_model_project.data.quality.preflight import preflight
    from coding_model_project.data.quality.reach import remember

    check_here = partial(
        preflight,
        mutants_per_problem=options.mutants,
        repeats=options.repeats,
        progress=advance,
    )
    async with embedded_sandbox(options.workers, options.min_tier) as sandbox:
        if options.journal is None:
            result = await check_here(problems, sandbox)
            remember(problems, result, sandbox.identity)
            return result

        async def check(chunk: Chunk) -> Preflight:
            return await check_here(chunk.problems, sandbox, found=chunk.found)

        return await _in_chunks(
            problems, options, advance, check, sandbox=sandbox.identity, at_once=_LOCAL_CHUNKS
        )


async def _on_nodes(
    problems: Sequence[Problem], options: PreflightOptions, advance: Advance
) -> Preflight:
    sandbox = SandboxConfig(workers=options.workers, min_tier=options.min_tier)
    async with pool_on_cluster(sandbox, options.address) as pool:
        facts = pool.nodes[0].facts
        assert facts is not None
        warn(f"checking on {len(pool.nodes)} nodes ({facts.sandbox})")

        async def check(chunk: Chunk) -> Preflight:
            result = await pool.run(
                chunk.key,
                lambda node: node.preflight(
                    chunk.problems, chunk.found, options.mutants, options.repeats
                ),
            )
            _advance(chunk, options, advance)
            return result

        return await _in_chunks(
            problems, options, advance, check, sandbox=facts.sandbox, at_once=sys.maxsize
        )


async def _in_chunks(
    problems: Sequence[Problem],
    options: PreflightOptions,
    advance: Advance,
    check: Callable[[Chunk], Awaitable[Preflight]],
    *,
    sandbox: str,
    at_once: int,
) -> Preflight:
    from coding_model_project.data.quality.chunks import as_row, check_chunks, chunks, of_row
    from coding_model_project.evaluation.kept import kept_results
    from coding_model_project.grading.base import GRADER_VERSION

    settings = (
        f"{GRADER_VERSION} {sandbox} idle mutants={options.mutants} repeats={options.repeats}"
    )
    cut = list(chunks(problems, settings))
    with kept_results(options.journal) as kept:
        known = {one.key: of_row(kept.known[one.key]) for one in cut if one.key in kept.known}
        if known:
            warn(f"resuming with {len(known)} of {len(cut)} chunks")
        for chunk in cut:
            if chunk.key in known:
                _advance(chunk, options, advance)
        return await check_chunks(
            cut,
            check,
            known=known,
            keep=lambda key, result: kept.keep(key, as_row(result)),
            at_once=at_once,
        )


def n_programs(problems: Sequence[Problem], mutants: int) -> int:
    """Return the number of `advance` calls in a preflight of these problems."""
    from coding_model_project.data.quality import preflight

    return sum(preflight.n_programs(one) + bool(mutants and one.gold) for one in problems)


def _advance(chunk: Chunk, options: PreflightOptions, advance: Advance) -> None:
    for _ in range(n_programs(chunk.problems, options.mutants)):
        advance()
