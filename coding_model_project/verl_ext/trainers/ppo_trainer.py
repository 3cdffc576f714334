"""verl's synchronous PPO trainer, which also reports what the judge found and never hangs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict
from ray.exceptions import GetTimeoutError, RayActorError
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from coding_model_project.configs.training import TrainingSampler
from coding_model_project.errors import SandboxError, TrainingError
from coding_model_project.harbor.integrity import NotIsolatedError
from coding_model_project.launch.checks.agent_checks import has_agent
from coding_model_project.launch.checks.bash_checks import has_bash
from coding_model_project.launch.checks.repair_checks import has_episodes
from coding_model_project.runs.folder import FATAL, RunFolder
from coding_model_project.runs.stopping import stop_requested
from coding_model_project.runs.ungradable import count, last_reason, lost_problems
from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY
from coding_model_project.verl_ext.trainers import resampling
from coding_model_project.verl_ext.trainers.generated import generated_tokens
from coding_model_project.verl_ext.trainers.guards import Guards
from coding_model_project.verl_ext.trainers.lengths import sort_by_length
from coding_model_project.verl_ext.trainers.online_sampler import OnlineSampler, with_sampler
from coding_model_project.verl_ext.trainers.step_metrics import (
    CLOCK_KEYS,
    agent_metrics,
    bash_metrics,
    repair_metrics,
    source_metrics,
    step_metrics,
)
from coding_model_project.verl_ext.trainers.step_samples import (
    SampleLog,
    final_keys,
    judged,
    lone_samples,
    trained_samples,
    validated_samples,
)
from coding_model_project.verl_ext.trainers.truncated import left_out
from coding_model_project.verl_ext.trainers.verl_checkpoints import CodingCheckpoints

_POLL_S = 0.05
_PING_EVERY_S = 10.0
_PING_TIMEOUT_S = 5.0
_FATAL_TIMEOUT_S = 10.0
_SAMPLE_FIELDS = [
    *("prompts", "responses", "response_mask", "rm_scores", "advantages", "extra_fields")
]
_GROUP_RELATIVE = frozenset(
    {"grpo", "grpo_vectorized", "grpo_passk", "rloo", "rloo_vectorized", "opo", "gpg"}
)
"""Advantage estimators that compare a sample with the others of its prompt."""


@register_trainer("coding_sync")
class CodingTrainer(PPOTrainerSync):
    """Adds to each training step the judgement's metrics; stops on an outage instead of hanging."""

    def __init__(self, config: Any) -> None:
        # verl compares the mode with "sync" where it chooses synchronous behaviour. The name above
        # only selects this class; from here on the mode is verl's own.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self._run = RunFolder(Path(config.coding.run_dir))
        self._log_dir = self._run.log_dir(self._run.last_number)
        self._samples = SampleLog(config)
        self._validated: tuple[list[str], list[str], list[float]] = ([], [], [])
        self._sampler: OnlineSampler | None = None
        self._guards = Guards(config.coding.training.guards)
        self._generated_before: int | None = None
        self._generated: int | None = None

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self.config.coding.training.sampler == TrainingSampler.online:
            self.train_dataloader, self._sampler = with_sampler(self.train_dataloader, self.config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = super()._build_replay_buffer()
        if type(buffer) is ReplayBuffer:  # a user's own sampler keeps its own rhythm
            # verl looks for finished trajectories every 2 s; a tiny model's step is shorter.
            buffer.poll_interval = min(buffer.poll_interval, _POLL_S)
            allowed = self.config.coding.training.max_resampling
            if allowed and buffer.filter_groups_metric is not None:
                resampling.cap(buffer, allowed * self.config.data.train_batch_size)
        sample = buffer.sample

        def some(*args: Any, **kwargs: Any) -> Any:
            batch, metrics = sample(*args, **kwargs)
            if not batch.keys:  # a validation: verl would stumble over it later
                raise SandboxError(f"not one sample of the validation could be judged{self._why()}")
            return batch, metrics

        buffer.sample = some
        return buffer

    def fit(self, agent_loop_manager: Any) -> None:
        watched = [
            *agent_loop_manager.agent_loop_workers,
            *(self.get_reward_handles() or []),
        ]
        try:
            with _watch(watched, self._fatal):
                super().fit(agent_loop_manager)
        finally:
            self._samples.close()
        if isinstance(self.checkpoint_callback, CodingCheckpoints):
            self.checkpoint_callback.finish()

    def on_init_end(self) -> None:
        with self._sync_deadline():
            super().on_init_end()

    def on_step_end(self) -> None:
        with self._sync_deadline():
            super().on_step_end()
        if stop_requested(self._log_dir):
            if "save_checkpoint" not in self.timing_raw:
                self._save_checkpoint()
            # verl logs this step's metrics and finds that it was the last.
            self.total_training_steps = self.global_steps

    def on_step_begin(self) -> None:
        if stop_requested(self._log_dir):  # asked before the first step: there is nothing to save
            self._fatal("asked to stop before the first step")
        super().on_step_begin()
        self._generated_before = generated_tokens(self.llm_server_manager.get_addresses())

    def on_sample_end(self) -> None:
        self._generated = generated_tokens(self.llm_server_manager.get_addresses())
        super().on_sample_end()

    def _step_once(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._step_once(*args, **kwargs)
        except RuntimeError as error:
            if "no materializable trajectories" not in str(error):
                raise
            raise SandboxError(
                f"step {self.global_steps}: not one sample could be generated and judged{self._why()}"
            ) from error

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        # The first thing verl does with a step's samples, so that nothing is trained on an outage.
        # A key is prompt_session_turn; a session that failed has none.
        n_judged = len({key.rpartition("_")[0] for key in batch.keys})
        missing = self._expected_samples - n_judged
        lost = missing - self._not_isolated(missing)
        self._stop_on_outage(lost / self._expected_samples, "this step's")
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        sort_by_length(batch, self.config)
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        if "actor/entropy" not in metrics:  # bypass mode: verl's comes from what it did not compute
            metrics["actor/entropy"] = _sampled_entropy(batch)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's, but a sample that is left alone of its group by an outage teaches nothing.

        verl compares it with zero: its whole reward would be its advantage.
        """
        batch = super()._compute_advantage(batch, metrics)
        if self._sampler is not None:  # here, since the checkpoint is written before the metrics
            self._sampler.update(_reward_infos(batch, final_keys(_trained(batch))))
        if self.config.algorithm.adv_estimator not in _GROUP_RELATIVE:
            return batch
        if self.config.actor_rollout_ref.rollout.n > 1 and (alone := lone_samples(batch.keys)):
            place = {"keys": alone, "partition_id": batch.partition_id}
            fields = tq.kv_batch_get(**place, select_fields=["advantages", "returns"])
            tq.kv_batch_put(**place, fields=fields.apply(torch.zeros_like))
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if not self.config.coding.training.mask_truncated:
            return super()._update_actor(batch, metrics)
        ends = {self.tokenizer.eos_token_id, self.tokenizer.pad_token_id} - {None}
        with left_out(batch, self.config.data.max_response_length, ends) as share:
            metrics["training/truncated_left_out"] = share
            return super()._update_actor(batch, metrics)

    @property
    def _expected_samples(self) -> int:
        return self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n

    def _not_isolated(self, missing: int) -> int:
        """Of this step's missing samples, those that `coding.harbor.integrity` left out: no outage."""
        return min(missing, count(self._run.path, self.global_steps, NotIsolatedError.__name__))

    def _compute_metrics(  # type: ignore[override]
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **kwargs: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, **kwargs)
        trained = _trained(batch)
        keys = final_keys(trained)
        fields = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=_SAMPLE_FIELDS
        )
        infos = _infos_of(fields)
        samples = trained_samples(self.tokenizer, keys, fields, infos)
        rewards = [sample.reward for sample in samples]
        refused = self._not_isolated(self._expected_samples - len(infos))
        expected = self._expected_samples - refused
        metrics.update(step_metrics(infos, rewards, expected))
        lost = lost_problems(self._run.path, self.global_steps)
        metrics.update(source_metrics([judged(sample) for sample in samples], lost))
        metrics["judge/not_isolated"] = refused / self._expected_samples
        if has_episodes(self.config):
            metrics.update(repair_metrics(infos, self.config.coding.repair.rounds))
        if has_bash(self.config):
            metrics.update(bash_metrics(infos))
        if has_agent(self.config):
            metrics.update(agent_metrics(infos))
        masks = tq.kv_batch_get(
            keys=trained, partition_id=batch.partition_id, select_fields=["response_mask"]
        )["response_mask"]
        metrics["rollout/trained_tokens"] = int(sum(mask.sum() for mask in masks))
        if self._generated is not None and self._generated_before is not None:
            metrics["rollout/generated_tokens"] = self._generated - self._generated_before
        self._samples.step(self.global_steps, "train", samples, self.logger.logger)
        metrics.update(self._guards.check(metrics))
        try:
            self._guards.end(metrics, self.global_steps)
        except TrainingError:
            logged = {key: value for key, value in metrics.items() if not key.startswith("_")}
            self.logger.log(data=logged, step=self.global_steps)
            raise

    def _maybe_log_val_generations(
        self, inputs: list[str], outputs: list[str], scores: list[float]
    ) -> None:
        # verl hands the texts to this only; the verdicts follow in _val_metrics_update.
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
        expected -= self._not_isolated(expected - len(sample_uids))
        infra_rate = 1 - len(sample_uids) / expected if expected else 0.0
        self._stop_on_outage(infra_rate, "the validation's")
        # Without the expected counts: verl would count what could not be judged as wrong.
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, sample_turns
        )
        return metrics | {"val-aux/judge/infra_rate": infra_rate}

    def _stop_on_outage(self, infra_rate: float, whose: str) -> None:
        allowed = self.config.coding.sandbox.max_failure_rate
        if infra_rate > allowed:
            raise SandboxError(
                f"{infra_rate:.0%} of {whose} samples could not be judged, more than "
                f"coding.sandbox.max_failure_rate={allowed}: stopped rather than go on with what is "
                f"left{self._why()}"
            )

    def _why(self) -> str:
        reason = last_reason(self._run.path)
        if not reason:  # nothing came as far as the judge
            return "; the rollout server's errors above say why"
        return f"; the last reason, all are in ungradable.jsonl: {reason}"

    @contextlib.contextmanager
    def _sync_deadline(self) -> Iterator[None]:
        """A failed weight sync leaves both sides waiting for each other for ever: end the run."""
        timeout_s = self.config.coding.weight_sync_timeout_s
        timer = threading.Timer(
            timeout_s,
            self._fatal,
            [
                f"weight sync to the rollout did not finish within {timeout_s:.0f} s "
                "(coding.weight_sync_timeout_s): the rollout server's log above says why"
            ],
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _fatal(self, reason: str) -> None:
        """End this process from any thread, whatever the disk does; the driver reports and cleans up."""
        hung = threading.Timer(_FATAL_TIMEOUT_S, os._exit, [3])  # a file system may never answer
        hung.daemon = True
        hung.start()
        try:
            (self._log_dir / FATAL).write_text(reason + "\n")
        except OSError as error:  # the console then has the reason
            print(f"{self._log_dir}: {error.strerror}; {reason}", file=sys.stderr, flush=True)  # noqa: T201
        finally:
            os._exit(3)


def _trained(batch: Any) -> list[str]:
    """Return the keys of a batch's samples, without padding."""
    tagged = zip(batch.keys, batch.tags, strict=True)
    return [key for key, tag in tagged if not tag.get("is_padding", False)]


def _reward_infos(batch: Any, keys: list[str]) -> list[dict[str, Any]]:
    place = {"keys": keys, "partition_id": batch.partition_id}
    return _infos_of(tq.kv_batch_get(**place, select_fields=["extra_fields"]))


def _infos_of(fields: Any) -> list[dict[str, Any]]:
    """Return each sample's reward_extra_info."""
    extras: list[Any] = [getattr(extra, "data", extra) for extra in fields["extra_fields"]]
    return [extra["reward_extra_info"] for extra in extras]


def _sampled_entropy(batch: Any) -> float:
    """Return the mean of -log p over the tokens of a step, which estimates their entropy."""
    names = ["old_log_probs", "response_mask"]
    place = {"keys": batch.keys, "partition_id": batch.partition_id}
    fields: Any = tq.kv_batch_get(**place, select_fields=names)
    log_probs, mask = (fields[name].values() for name in names)
    return float(-(log_probs * mask).sum() / mask.sum().clamp(min=1))


@contextlib.contextmanager
def _watch(actors: list[Any], fatal: Any) -> Iterator[None]:
    """Call `fatal` once one of these Ray actors is dead: verl would wait for its result for ever."""
    stop = threading.Event()

    def ping() -> None:
        while not stop.wait(_PING_EVERY_S):
            for actor in actors:
                try:
                    ray.get(actor.__ray_ready__.remote(), timeout=_PING_TIMEOUT_S)
                except GetTimeoutError:
                    continue  # busy, not dead
                except RayActorError as error:
                    if not stop.is_set():
                        fatal(f"a worker died: {str(error).splitlines()[0]}")

    thread = threading.Thread(target=ping, name="watch-workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
