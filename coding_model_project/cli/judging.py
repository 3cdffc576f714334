"""Judging of many programs for commands: on this machine or all nodes of a cluster, with a journal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from coding_model_project.cli.common import embedded_sandbox, warn
from coding_model_project.cli.options import Resumable
from coding_model_project.errors import SandboxError
from coding_model_project.extras import extra
from coding_model_project.progress import Advance
from coding_model_project.sandbox.sandbox_config import SandboxConfig

if TYPE_CHECKING:
    from coding_model_project.data.quality.preflight import Check, Checker, Fault, Preflight
    from coding_model_project.evaluation.journal import KeptResults
    from coding_model_project.sandbox.base import Sandbox
    from coding_model_project.types import Problem


def sandbox_of(config: SandboxConfig, where: Resumable) -> Sandbox:
    """Return an unopened sandbox, here or on all nodes of a cluster.

    Raises:
        ConfigError: the cluster has no address, or Ray is not installed.
    """
    if where.cluster is None:
        return embedded_sandbox(config)
    with extra("train"):
        from coding_model_project.verl_ext.cluster.node_sandbox import NodesSandbox
        from coding_model_project.verl_ext.cluster.session import head_address, joined

    return NodesSandbox(config, join=partial(joined, head_address(where.ray_address)), say=warn)


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
    from coding_model_project.data.quality.preflight import AT_ONCE, check_all, open_checker
    from coding_model_project.evaluation.journal import kept_results
    from coding_model_project.harbor import task_grader

    with kept_results(how.where.journal) as kept:
        if kept.known:
            warn(f"resuming with {len(kept.known)} results")
        async with (
            sandbox_of(how.sandbox, how.where) as sandbox,
            open_checker(sandbox, task_grader) as checker,
        ):
            check = _kept_check(checker, sandbox.identity, how, kept)
            at_once = sys.maxsize if how.where.cluster else AT_ONCE
            try:
                return await check_all(problems, check, at_once=at_once, progress=advance)
            except SandboxError as error:
                raise SandboxError(
                    f"{error}; to check only those, repeat the command with --journal FILE"
                ) from error


def _kept_check(checker: Checker, identity: str, how: Checking, kept: KeptResults) -> Check:
    """Return a check that takes results from a journal, and stores new ones there."""
    from pydantic import TypeAdapter

    from coding_model_project.data.quality.preflight import Preflight, result_key
    from coding_model_project.data.quality.reach import remember
    from coding_model_project.grading.base import GRADER_VERSION

    row_type = TypeAdapter(Preflight)
    settings = f"{GRADER_VERSION} {identity} {how.mutants} {how.repeats}"

    async def check(problem: Problem, found: Sequence[Fault]) -> Preflight:
        key = result_key(problem, found, settings)
        if (row := kept.known.get(key)) is not None:
            return row_type.validate_python(row)
        result = await checker.check(
            problem, found, mutants_per_problem=how.mutants, repeats=how.repeats
        )
        remember(problem, result, identity)
        if not problem.task:  # a folder, which may change
            kept.keep(key, asdict(result))
        return result

    return check
