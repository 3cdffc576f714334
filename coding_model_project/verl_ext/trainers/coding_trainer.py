"""Additions to each of verl's PPO trainers: metrics of judging, and errors instead of hangs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, ClassVar

import transfer_queue as tq
from omegaconf import open_dict
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from coding_model_project.configs.schema import TrainingSampler
from coding_model_project.errors import SandboxError, TrainingError
from coding_model_project.launch.checks.episode_checks import has_agent, has_bash, has_episodes
from coding_model_project.runs.folder import FATAL, RunFolder, stop_requested
from coding_model_project.runs.rollouts import Ungradable
from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY
from coding_model_project.verl_ext.trainers import batches, guards, samples
from coding_model_project.verl_ext.trainers.sampling import OnlineSampler, with_sampler
from coding_model_project.verl_ext.trainers.verl_checkpoints import CodingCheckpoints

_SAMPLE_FIELDS = [
    *("prompts", "responses", "response_mask", "rm_scores", "advantages", "extra_fields")
]


class CodingTrainer(PPOTrainer):
    """A mixin to put before one of verl's trainers in the bases of a class (`ppo_trainer`)."""

    MODE: ClassVar[str]
    """verl's name of the mode of the trainer behind it."""
    _has_trained = False
    """True once this attempt has ended a step."""
    _validated: tuple[list[str], list[str], list[float]] = ([], [], [])
    """Prompts, completions and rewards of the current validation."""

    def __init__(self, config: Any) -> None:
        # verl compares the mode with its own names. `coding_<mode>` only selects this class, so from here
        # on the mode is verl's own.
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.MODE
        self._run = RunFolder(Path(config.coding.run_dir))
        self._log_dir = self._run.log_dir(self._run.last_number)
        self._outages = guards.Outages(self._run.path, config.coding.sandbox.max_failure_rate)
        super().__init__(config)
        self._samples = samples.SampleLog(config)
        self._sampler: OnlineSampler | None = None
        self._guards = guards.Guards(config.coding.training.guards)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self.config.coding.training.sampler == TrainingSampler.online:
            self.train_dataloader, self._sampler = with_sampler(self.train_dataloader, self.config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = self._adapt(super()._build_replay_buffer())
        sample = buffer.sample

        def sample_some(*args: Any, **kwargs: Any) -> Any:
            batch, metrics = sample(*args, **kwargs)
            if not batch.keys:  # of a validation; verl would fail on it later
                raise SandboxError(
                    f"no sample of the validation could be judged{self._outages.why()}"
                )
            return batch, metrics

        buffer.sample = sample_some
        return buffer

    def _adapt(self, buffer: ReplayBuffer) -> ReplayBuffer:
        """Return verl's replay buffer as this mode needs it."""
        return buffer

    def fit(self, agent_loop_manager: Any) -> None:
        watched = [
            *agent_loop_manager.agent_loop_workers,
            *(self.get_reward_handles() or []),
        ]
        try:
            with guards.watching(watched, self._fatal):
                super().fit(agent_loop_manager)
        finally:
            self._samples.close()
        if isinstance(self.checkpoint_callback, CodingCheckpoints):
            self.checkpoint_callback.finish()

    def on_init_end(self) -> None:
        with self._sync_deadline():
            super().on_init_end()

    def on_step_begin(self) -> None:
        # A stop during a validation takes effect after this step: its checkpoint has the steps before it.
        if stop_requested(self._log_dir) and not self._has_trained:
            self._fatal("stopped on request before the first step")
        super().on_step_begin()

    def on_step_end(self) -> None:
        self._has_trained = True
        if stop_requested(self._log_dir):
            # Before samples of the next step are generated.
            if "save_checkpoint" not in self.timing_raw:
                self._save_checkpoint()
            # verl logs this step's metrics and finds that it was the last.
            self.total_training_steps = self.global_steps
        with self._sync_deadline():
            super().on_step_end()

    def _step_once(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._step_once(*args, **kwargs)
        except RuntimeError as error:
            if "no materializable trajectories" not in str(error):
                raise
            raise SandboxError(
                f"step {self.global_steps}: no sample could be generated and judged"
                f"{self._outages.why()}"
            ) from error

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        # verl's first call with a step's samples, so an outage ends the run before it trains.
        # A key is prompt_session_turn; a failed session has none.
        n_judged = len({key.rpartition("_")[0] for key in batch.keys})
        expected = self._expected_samples // self.parameter_sync_step
        missing = expected - n_judged
        lost = missing - self._not_isolated(missing, self._belongs_to(batch))
        self._outages.stop(lost / expected, "this step's")
        if self.actor_rollout_wg.world_size == 1:  # nothing to balance, for which verl takes 0.1 s
            multiple = self._get_required_batch_multiple(1)
            batch = upsample_batch_to_divisible_size(batch, multiple, self.tokenizer.eos_token_id)
        else:
            batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        batches.arrange(batch, self.config)
        return batch

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        # Bypass mode: verl computes no log-probabilities for its own.
        if "actor/entropy" not in metrics:
            metrics["actor/entropy"] = batches.sampled_entropy(batch)
        found = batches.measured_mismatch(batch, self.actor_rollout_wg, self.config)
        if found is not None:
            metrics[guards.MISMATCH] = found
            guards.check_mismatch(found, guards.mismatch_limit(self.config), self.global_steps)
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        # Here, since the checkpoint is written before the metrics are computed.
        if self._sampler is not None:
            self._sampler.update(
                batches.reward_infos(batch, batches.final_keys(batches.trained_keys(batch)))
            )
        batches.clear_lone(batch, batch.keys, self.config)
        return batch

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if not self.config.coding.training.mask_truncated:
            return super()._update_actor(batch, metrics)
        ends = {self.tokenizer.eos_token_id, self.tokenizer.pad_token_id} - {None}
        with batches.left_out(batch, self.config.data.max_response_length, ends) as share:
            metrics["training/truncated_left_out"] = share
            return super()._update_actor(batch, metrics)

    @property
    def _expected_samples(self) -> int:
        return self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n

    @property
    def _requested_samples(self) -> int:
        """Number of samples that a step requested, with those that it replaced."""
        return self._expected_samples

    def _belongs(self, row: Ungradable) -> bool:
        """Return whether this step would have trained on a sample."""
        return row.step == self.global_steps

    def _belongs_to(self, batch: Any) -> guards.Belongs:
        """Return a predicate of the samples that are missing from a batch."""
        return self._belongs

    def _not_isolated(self, missing: int, belongs: guards.Belongs) -> int:
        """Return how many of the missing samples `coding.harbor.integrity` dropped: no outage."""
        return min(missing, self._outages.not_isolated(belongs)) if missing else 0

    def _servers(self) -> list[str]:
        """Return "host:port" of each rollout server."""
        managers = self._rollout_server_managers()
        return [address for manager in managers for address in manager.get_addresses()]

    def _token_metrics(self) -> dict[str, float]:
        """Return metrics of the tokens that the rollout servers count."""
        return {}

    def _waits_since(self) -> float:
        """Return the earliest time at which this step waits for a verdict, in seconds since the epoch."""
        return 0.0

    def _compute_metrics(
        self,
        batch: Any,
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        global_steps: int,
        epoch: int,
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        trained = batches.trained_keys(batch)
        keys = batches.final_keys(trained)
        fields = tq.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=_SAMPLE_FIELDS
        )
        infos = batches.infos_of(fields)
        drawn = samples.trained_samples(self.tokenizer, keys, fields, infos)
        rewards = [sample.reward for sample in drawn]
        requested = self._requested_samples
        refused = self._not_isolated(requested - len(infos), self._belongs)
        expected = requested - refused
        metrics.update(samples.step_metrics(infos, rewards, expected, since=self._waits_since()))
        lost = self._outages.lost(self._belongs)
        metrics["judge/seconds"] += sum(row.judge_s for row in lost)
        problems = [row.problem for row in lost]
        metrics.update(samples.source_metrics(drawn, problems))
        metrics["judge/not_isolated"] = refused / requested
        if has_episodes(self.config):
            metrics.update(samples.repair_metrics(infos, self.config.coding.repair.rounds))
        metrics.update(samples.work_metrics(infos))
        metrics["rollout/trained_tokens"] = sum(batches.model_tokens(trained, batch.partition_id))
        metrics.update(self._token_metrics())
        self._samples.step(self.global_steps, "train", drawn, self.logger.logger)
        if global_steps == 1:
            self._warn(metrics)
        metrics.update(self._guards.check(metrics))
        try:
            self._check_step(metrics)
        except TrainingError:
            logged = {key: value for key, value in metrics.items() if not key.startswith("_")}
            self.logger.log(data=logged, step=self.global_steps)
            raise

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
        validated = samples.validated_samples(
            sample_uids, *self._validated, reward_extra_infos_dict
        )
        self._samples.step(self.global_steps, "validation", validated, self.logger.logger)
        for key in (*samples.CLOCK_KEYS, SAMPLE_KEY):
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

    def _warn(self, metrics: dict[str, Any]) -> None:
        """Print a warning if the first step has no program; an agent's work has no prompt style."""
        of_agent = has_bash(self.config) or has_agent(self.config)
        if not of_agent and (warning := guards.no_program(metrics, self.config.coding.prompt)):
            print(warning, flush=True)  # noqa: T201

    def _check_step(self, metrics: dict[str, Any]) -> None:
        """End the run if a step's metrics are out of bounds.

        Raises:
            TrainingError: names the metric, the bound and the fix.
        """
        self._guards.end(metrics, self.global_steps)

    def _sync_deadline(self) -> contextlib.AbstractContextManager[None]:
        """End the run if a weight sync takes too long: after a failure both sides wait for ever."""
        timeout_s = self.config.coding.weight_sync_timeout_s
        reason = (
            f"weight sync to the rollout did not finish within {timeout_s:.0f} s "
            "(coding.weight_sync_timeout_s); see the rollout server's log above"
        )
        return guards.deadline(timeout_s, self._fatal, reason)

    def _fatal(self, reason: str) -> None:
        """End this process, from any thread; the driver reports the reason and cleans up."""
        guards.end_process(self._log_dir / FATAL, reason)
