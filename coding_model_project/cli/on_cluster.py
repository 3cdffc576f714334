"""Judges for commands that work on all nodes of a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from coding_model_project.cli.common import warn
from coding_model_project.extras import extra
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.sandbox.sandbox_config import SandboxConfig

if TYPE_CHECKING:
    from coding_model_project.grading.judge import Graders
    from coding_model_project.grading.node_pool import NodePool
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

    plan = JudgePlan(sandbox=sandbox, bare=False, stop_early=True, stop_on_timeout=False)
    return open_pool(plan, join=_joins(address), say=warn)


def _joins(address: str | None) -> partial[AbstractContextManager[None]]:
    from coding_model_project.verl_ext.cluster.ray_driver import head_address, joined

    return partial(joined, head_address(address))
