"""Samples without a verdict in verl's own trainer, with its queue and arithmetic, without engines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import SandboxError
from tests.unit.verl_ext.test_own_recipe import trainer_of

pytestmark = [pytest.mark.verl, pytest.mark.timeout(300)]

SCORES = {
    "a": [1.0, 0.0, 0.5, None],
    "b": [1.0, None, None, None],
    "c": [None] * 4,
}
"""Score of each sample by group; None has no verdict."""


def judged() -> tuple[dict[str, float], dict[str, float]]:
    """Put all samples into a queue as verl's agent loop does; return advantages by key, and metrics."""
    import torch
    import transfer_queue as tq
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    storage = {"SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 100}}
    tq.init(OmegaConf.create({"backend": storage}))
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
    place = {"keys": keys, "partition_id": "train"}
    batch = tq.kv_batch_put(**place, tags=tags, fields=list_of_dict_to_tensordict(fields))
    with pytest.MonkeyPatch.context() as monkeypatch:
        trainer = trainer_of("colocate_async", monkeypatch, on_ungradable="zero_advantage")
        trainer.config.data.train_batch_size, trainer.config.actor_rollout_ref.rollout.n = 3, 4
        trainer.use_critic, trainer._rollout_moe_lb_metrics_accumulator = False, SimpleNamespace()
        trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
        metrics: dict[str, float] = {}
        computed = trainer._compute_advantage(batch, metrics)
        assert computed.keys == keys
        found = tq.kv_batch_get(**place, select_fields=["advantages"])["advantages"]
        trainer._compute_metrics(computed, metrics, {"step": 1.0, "gen": 1.0}, 1, 0)
        with pytest.raises(SandboxError):
            trainer._compute_advantage(
                batch.select_keys([key for key in keys if key[0] == "c"]), {}
            )
    tq.close()
    return {key: float(one.sum()) for key, one in zip(keys, found, strict=True)}, metrics


def test_a_sample_without_a_verdict_has_no_part_in_anything(in_ray):
    import ray

    advantages, metrics = ray.get(ray.remote(judged).remote())
    # The mean of the judged ones is 0.5, and their deviation 0.5.
    assert advantages["a_0_0"] == pytest.approx(3.0, abs=1e-3)
    assert advantages["a_1_0"] == pytest.approx(-3.0, abs=1e-3)
    assert advantages["a_2_0"] == pytest.approx(0.0, abs=1e-3)
    rest = {key for key, value in advantages.items() if value}
    assert rest == {"a_0_0", "a_1_0"}  # also none of a sample that is left alone
    assert metrics["critic/score/mean"] == pytest.approx(2.5 / 4)
    assert metrics["judge/acc"] == pytest.approx(2 / 4)
    assert metrics["judge/ungradable"] == pytest.approx(8 / 12)
