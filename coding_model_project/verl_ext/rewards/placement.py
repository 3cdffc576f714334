"""One judge per node: where verl's reward workers run.

verl spreads them round robin, but softly: Ray may put two on one node, whose judges then run twice as
many programs at once as it has cores, while another node's cores stay idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.ppo.v1 import trainer_base

from coding_model_project.verl_ext.cluster.nodes import Node, alive_nodes, pinned


class _PlacedRewardLoopManager(RewardLoopManager):
    """verl's, but each worker is on its node or nowhere."""

    def _init_reward_loop_workers(self) -> None:
        nodes = judging_nodes(alive_nodes())
        self.reward_loop_workers = [
            self.reward_loop_workers_class.options(
                name=f"reward_loop_worker_{number}",
                **pinned(nodes[number % len(nodes)]),
            ).remote(self.config, self.reward_router_address)
            for number in range(self.config.reward.num_workers)
        ]


def judging_nodes(nodes: Sequence[Node]) -> list[str]:
    """Return the ids of the nodes that can judge, those that train first."""
    able = [node for node in nodes if node.cpus]
    return [node.id for node in sorted(able, key=lambda node: node.gpus == 0)]


def place_judges() -> None:
    """Have verl's trainer, which has no key for it, place its reward workers so."""
    verls: Any = trainer_base
    verls.RewardLoopManager = _PlacedRewardLoopManager
