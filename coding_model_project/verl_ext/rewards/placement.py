"""Placement of verl's reward workers: one judge per node.

verl places `reward.num_workers` of them round robin, but only as a preference. Two judges on one node
would run twice as many programs at once as it has cores, so a node has one, however many workers are set.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.reward_loop import RewardLoopManager, reward_loop

from coding_model_project.verl_ext.cluster.nodes import alive_nodes, pinned


class RewardLoopWorker(reward_loop.RewardLoopWorker):
    """verl's worker, which `loops.worker` also calls with a sample instead of verl's batch of tensors."""

    async def judge(self, *sample: Any) -> dict[str, Any]:
        """See `CodeRewardManager.judge`."""
        ours: Any = self.reward_manager
        return await ours.judge(*sample)


class _PlacedRewardLoopManager(RewardLoopManager):
    """verl's manager with each worker pinned to its node."""

    def _init_reward_loop_workers(self) -> None:
        able = sorted((node for node in alive_nodes() if node.cpus), key=lambda one: one.gpus == 0)
        nodes = [node.id for node in able]  # training nodes first
        self.reward_loop_workers = [
            self.reward_loop_workers_class.options(
                name=f"reward_loop_worker_{number}",
                **pinned(node),
            ).remote(self.config, self.reward_router_address)
            for number, node in enumerate(nodes[: self.config.reward.num_workers])
        ]


def place_judges() -> None:
    """Replace the manager and its workers in verl's trainer, which has no key for them."""
    from verl.trainer.ppo.v1 import trainer_base  # not in reward workers, which import this module

    verls: Any = trainer_base
    verls.RewardLoopManager = _PlacedRewardLoopManager
    workers: Any = reward_loop
    workers.RewardLoopWorker = RewardLoopWorker
