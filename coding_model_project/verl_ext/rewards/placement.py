"""One judge per node: where verl's reward workers run.

verl spreads them round robin, but softly: Ray may put two on one node, whose judges then run twice as
many programs at once as it has cores, while another node's cores stay idle.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.experimental.reward_loop import RewardLoopManager
from verl.trainer.ppo.v1 import trainer_base


class _PlacedRewardLoopManager(RewardLoopManager):
    """verl's, but each worker is on its node or nowhere."""

    def _init_reward_loop_workers(self) -> None:
        nodes = judging_nodes(ray.nodes())
        self.reward_loop_workers = [
            self.reward_loop_workers_class.options(
                name=f"reward_loop_worker_{number}",
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    nodes[number % len(nodes)], soft=False
                ),
            ).remote(self.config, self.reward_router_address)
            for number in range(self.config.reward.num_workers)
        ]


def judging_nodes(nodes: list[dict[str, Any]]) -> list[str]:
    """Return the ids of nodes that can judge, those that train first.

    Args:
        nodes: as `ray.nodes` gives them.
    """
    able = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    able.sort(key=lambda node: node["Resources"].get("GPU", 0) == 0)
    return [node["NodeID"] for node in able]


def place_judges() -> None:
    """Have verl's trainer, which has no key for it, place its reward workers so."""
    verls: Any = trainer_base
    verls.RewardLoopManager = _PlacedRewardLoopManager
