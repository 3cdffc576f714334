"""Samples without a verdict in verl's own trainer, with its queue and arithmetic, without engines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from tests.unit.verl_ext.test_own_recipe import trainer_of

pytestmark = [pytest.mark.verl, pytest.mark.timeout(300)]

SCORES = {
    "a": [1.0, 0.0, 0.5, None],
    "b": [1.0, None, None, None],
    "c": [None] * 4,
}
"""Score of each sample by group; None has no verdict."""


@pytest.fixture
def queue():
    import ray
    import transfer_queue as tq

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80_000_000)
    storage = {"SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 100}}
    tq.init(OmegaConf.create({"backend": storage}))
    yield tq
    tq.close()
    ray.shutdown()


@pytest.fixture
def batch(queue):
    """All samples as an agent loop of verl puts them into the queue."""
    import torch
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    keys, fields, tags = [], [], []
    for uid, scores in SCORES.items():
        for session, score in enumerate(scores):
            keys.append(f"{uid}_{session}_0")
            info = {"acc": float(score == 1.0), "ungradable": float(score is None)}
            tokens = torch.arange(1, 4)
            fields.append(
                {
                    "uid": uid,
                    "prompts": tokens,
                    "responses": tokens,
                    "response_mask": torch.ones(3, dtype=torch.int64),
                    "rm_scores": torch.tensor([0.0, 0.0, score or 0.0]),
                    "old_log_probs": torch.zeros(3),
                    "num_turns": 2,
                    "extra_fields": {"reward_extra_info": info},
                }
            )
            tags.append({"seq_len": 6, "min_global_steps": 0, "max_global_steps": 0})
    place = {"keys": keys, "partition_id": "train", "tags": tags}
    return queue.kv_batch_put(**place, fields=list_of_dict_to_tensordict(fields))


def test_a_sample_without_a_verdict_has_no_part_in_anything(queue, batch, monkeypatch):
    trainer = trainer_of("colocate_async", monkeypatch, on_ungradable="zero_advantage")
    trainer.config.data.train_batch_size, trainer.config.actor_rollout_ref.rollout.n = 3, 4
    trainer.use_critic, trainer._rollout_moe_lb_metrics_accumulator = False, SimpleNamespace()
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    metrics = {}
    computed = trainer._compute_advantage(batch, metrics)
    assert computed.keys == batch.keys
    place = {"keys": batch.keys, "partition_id": "train"}
    found = queue.kv_batch_get(**place, select_fields=["advantages"])["advantages"]
    advantages = {key: float(one.sum()) for key, one in zip(batch.keys, found, strict=True)}
    # The mean of the judged ones is 0.5, and their deviation 0.5.
    assert advantages["a_0_0"] == pytest.approx(3.0, abs=1e-3)
    assert advantages["a_1_0"] == pytest.approx(-3.0, abs=1e-3)
    assert advantages["a_2_0"] == pytest.approx(0.0, abs=1e-3)
    rest = {key for key, value in advantages.items() if value}
    assert rest == {"a_0_0", "a_1_0"}  # also none of a sample that is left alone
    trainer._compute_metrics(computed, metrics, {"step": 1.0, "gen": 1.0}, 1, 0)
    assert metrics["critic/score/mean"] == pytest.approx(2.5 / 4)
    assert metrics["judge/acc"] == pytest.approx(2 / 4)
    assert metrics["judge/ungradable"] == pytest.approx(8 / 12)
