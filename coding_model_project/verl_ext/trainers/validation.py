"""Validations of verl's PPO trainers, with ungradable samples dropped and counted."""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY
from coding_model_project.verl_ext.trainers.outages import Outages
from coding_model_project.verl_ext.trainers.step_metrics import CLOCK_KEYS
from coding_model_project.verl_ext.trainers.step_samples import SampleLog, validated_samples


class ValidatingTrainer(PPOTrainer):
    """The part of `CodingTrainer` for validations."""

    _outages: Outages
    _samples: SampleLog
    _validated: tuple[list[str], list[str], list[float]] = ([], [], [])
    """Prompts, completions and rewards of the current validation."""

    def _maybe_log_val_generations(
        self, inputs: list[str], outputs: list[str], scores: list[float]
    ) -> None:
        # verl passes the texts only here; the verdicts follow in _val_metrics_update.
        self._validated = (inputs, outputs, scores)
        super()._maybe_log_val_generations(inputs, outputs, scores)

    def _val_metrics_update(
        self,
        data_sources: Any,
        sample_uids: Any,
        reward_extra_infos_dict: dict[str, list[Any]],
        sample_turns: Any,
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        samples = validated_samples(sample_uids, *self._validated, reward_extra_infos_dict)
        self._samples.step(self.global_steps, "validation", samples, self.logger.logger)
        for key in (*CLOCK_KEYS, SAMPLE_KEY):
            reward_extra_infos_dict.pop(key, None)
        expected = sum((expected_acc_counts or {}).values())
        step = self.global_steps
        refused = self._outages.not_isolated(lambda row: row.step == step)
        expected -= min(expected - len(sample_uids), refused)
        infra_rate = 1 - len(sample_uids) / expected if expected else 0.0
        self._outages.stop(infra_rate, "the validation's")
        # Without the expected counts, by which verl would count ungradable samples as wrong.
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, sample_turns
        )
        return metrics | {"val-aux/judge/infra_rate": infra_rate}
