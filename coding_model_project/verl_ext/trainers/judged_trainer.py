"""Additions to verl's trainer in somebody's own main_ppo, for samples that could not be judged.

verl 0.9.1 by itself: `sync` trains on the other samples of a group, and compares one that is left alone
with zero. The asynchronous modes evict the whole group and request another one, without end while nothing
can be judged.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from coding_model_project.configs.schema import OnUngradable
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.verl_ext.rewards.own_recipe import UNGRADABLE
from coding_model_project.verl_ext.trainers import batches

_MOST = 2
"""Batches of failed groups in one step above which a run in an asynchronous mode ends."""
_SEE = "the lines with `is left out` above, or coding.run_dir/ungradable.jsonl, have the reasons"


class JudgedTrainer(PPOTrainer):
    """A mixin for each of verl's V1 trainers, with metrics `judge/*` of each step."""

    _on_ungradable: OnUngradable
    _failed: set[str]
    """Groups of this step with a failed sample."""

    def _follow(self, on_ungradable: OnUngradable) -> None:
        """Begin to follow the replay buffer, which verl has created.

        Raises:
            ConfigError: a custom sampler does not say which samples fail.
        """
        self._on_ungradable, self._failed = on_ungradable, set()
        buffer: Any = self.replay_buffer
        if not isinstance(buffer, ReplayBuffer):
            if on_ungradable is OnUngradable.stop:
                raise ConfigError(
                    "coding.on_ungradable=raise: trainer.v1.sampler.custom_sampler is no subclass of "
                    "verl's ReplayBuffer: leave out one of the two"
                )
            return
        sample, reasons = buffer.sample, buffer._terminal_eviction_reasons

        def sample_judged(*args: Any, **kwargs: Any) -> Any:
            batch, metrics = sample(*args, **kwargs)
            if batch.partition_id == "val":
                lost = self._ungradable(batch)
                batch = batch.select_keys([key for key in batch.keys if key not in lost])
                if not batch.keys:  # verl would fail on it later
                    raise SandboxError(f"no sample of the validation could be judged; {_SEE}")
            return batch, metrics

        def reasons_watched(global_steps: int, partition_id: str) -> Any:
            self._look_at(buffer.failure_keys[partition_id], partition_id)
            return reasons(global_steps, partition_id)

        buffer.sample, buffer._terminal_eviction_reasons = sample_judged, reasons_watched

    def _look_at(self, failed: set[str], partition: str) -> None:
        """End the run if a sample failed and none may, or if an outage does not end.

        Raises:
            SandboxError: says why, and where the reasons are.
        """
        if failed and self._on_ungradable is OnUngradable.stop:
            raise SandboxError(f"coding.on_ungradable=raise: a sample could not be judged; {_SEE}")
        if partition == "val":
            return
        self._failed |= failed
        wanted = self.config.data.train_batch_size
        if isinstance(self.replay_buffer, ReplayBufferAsync) and len(self._failed) > _MOST * wanted:
            raise SandboxError(
                f"{len(self._failed)} groups had a sample that could not be judged while a step waited "
                f"for {wanted} groups; verl evicts such a group whole in this mode "
                f"(+coding.on_ungradable=zero_advantage keeps its other samples); {_SEE}"
            )

    def on_step_begin(self) -> None:
        self._failed.clear()
        super().on_step_begin()

    def _step_once(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._step_once(*args, **kwargs)
        except RuntimeError as error:  # verl's message names a key that does not help
            if "no materializable trajectories" not in str(error):
                raise
            raise SandboxError(f"no sample of the step could be judged; {_SEE}") from error

    def _ungradable(self, batch: Any) -> set[str]:
        """Return the keys of the samples whose score is a placeholder."""
        if self._on_ungradable is not OnUngradable.zero_advantage:
            return set()
        keys = batches.trained_keys(batch)
        infos = batches.reward_infos(batch, keys)
        return {key for key, info in zip(keys, infos, strict=True) if info.get(UNGRADABLE)}

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Compute the advantages of the judged samples among themselves; all others get zero."""
        lost = self._ungradable(batch)
        judged = [key for key in batch.keys if key not in lost]
        if not set(batches.trained_keys(batch)) - lost:
            raise SandboxError(f"no sample of the step could be judged; {_SEE}")
        computed = super()._compute_advantage(batch, metrics)
        if lost:
            super()._compute_advantage(batch.select_keys(judged), metrics)
            batches.clear_advantages(batch, sorted(lost))
        batches.clear_lone(batch, judged, self.config)
        return computed

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        lost = self._ungradable(batch)
        shown = batch.select_keys(batch.keys)  # with tags of its own
        for key, tag in zip(shown.keys, shown.tags, strict=True):
            if key in lost:
                tag["is_padding"] = True  # a placeholder is no score in verl's metrics
        super()._compute_metrics(shown, metrics, *args, **kwargs)
        infos = batches.reward_infos(
            batch, batches.final_keys([k for k in batches.trained_keys(batch) if k not in lost])
        )
        for name, value in infos[0].items():
            if isinstance(value, float) and name != UNGRADABLE:
                metrics[f"judge/{name}"] = fmean(info[name] for info in infos)
        wanted = self.config.data.train_batch_size * self.config.actor_rollout_ref.rollout.n
        metrics["judge/ungradable"] = max(0.0, 1 - len(infos) / wanted)

    def _val_metrics_update(
        self,
        data_sources: Any,
        sample_uids: Any,
        reward_extra_infos_dict: dict[str, list[Any]],
        sample_turns: Any,
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        # Without the expected counts, by which verl would count ungradable samples as wrong.
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, sample_turns
        )
        expected = sum((expected_acc_counts or {}).values()) or len(sample_uids)
        return metrics | {"val-aux/judge/ungradable": max(0.0, 1 - len(sample_uids) / expected)}


def attach(trainer: PPOTrainer, on_ungradable: OnUngradable) -> None:
    """Give one of verl's trainers, which verl has created, the methods of `JudgedTrainer`.

    Raises:
        ConfigError: a custom sampler does not say which samples fail.
    """
    if isinstance(trainer, JudgedTrainer):  # verl looks the class up twice
        return
    kind = type(trainer)
    judged: Any = type(f"Judged{kind.__name__}", (JudgedTrainer, kind), {})
    trainer.__class__ = judged
    judged._follow(trainer, on_ungradable)
