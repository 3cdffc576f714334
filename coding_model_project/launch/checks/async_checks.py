"""Checks of keys that conflict with `coding.mode`."""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import (
    CodingConfig,
    TrainingMode,
    TrainingSampler,
    staleness_of,
)
from coding_model_project.errors import ConfigError

_CORRECTION = "algorithm.rollout_correction"
_ROLLOUT = "actor_rollout_ref.rollout"


def check_values(config: DictConfig, coding: CodingConfig) -> None:
    """Check the keys that depend on the mode.

    Raises:
        ConfigError: a key conflicts; the message names it and the fix.
    """
    problems = _asynchronous if coding.mode.asynchronous else _synchronous
    for message in (*_renamed(config, coding), *problems(config, coding)):
        raise ConfigError(message)


def _renamed(config: DictConfig, coding: CodingConfig) -> Iterator[str]:
    """Refuse verl keys that follow from keys under `coding:`."""
    v1 = config.trainer.v1
    if v1.trainer_mode != f"coding_{coding.mode}":
        mode = v1.trainer_mode if v1.trainer_mode in list(TrainingMode) else "MODE"
        yield (
            f"trainer.v1.trainer_mode={v1.trainer_mode}: follows from coding.mode: set coding.mode={mode}"
        )
    threshold = v1.sampler.max_off_policy_threshold
    allowed = staleness_of(coding.mode, coding.max_staleness)
    if threshold != allowed + 1:
        yield (
            f"trainer.v1.sampler.max_off_policy_threshold={threshold}: follows from "
            f"coding.max_staleness + 1: set coding.max_staleness"
        )


def _synchronous(config: DictConfig, coding: CodingConfig) -> Iterator[str]:
    if coding.max_staleness:
        yield (
            f"coding.max_staleness={coding.max_staleness}: coding.mode=sync trains only on samples of "
            "the newest weights: set coding.mode=colocate_async or separate_async, or remove it"
        )


def _asynchronous(config: DictConfig, coding: CodingConfig) -> Iterator[str]:
    mode, allowed = coding.mode, staleness_of(coding.mode, coding.max_staleness)
    sampler, own = config.trainer.v1.sampler, config.trainer.v1[mode]
    if sampler.max_off_policy_strategy != "drop":
        yield (
            f"trainer.v1.sampler.max_off_policy_strategy={sampler.max_off_policy_strategy}: only drop "
            "enforces coding.max_staleness: set it to drop"
        )
    if sampler.custom_sampler.path:
        yield (
            f"trainer.v1.sampler.custom_sampler.path={sampler.custom_sampler.path}: coding.mode={mode} "
            "uses its own sampler: set it to null, or coding.mode=sync"
        )
    if own.num_warmup_batches > allowed:
        yield (
            f"trainer.v1.{mode}.num_warmup_batches={own.num_warmup_batches}: samples requested that many "
            f"steps ahead exceed coding.max_staleness={allowed}: set it to {allowed} or less"
        )
    if allowed:
        yield from _uncorrected(config, allowed)
    training = coding.training
    if training.sampler is TrainingSampler.online:
        yield f"coding.training.sampler=online with coding.mode={mode}: set sampler=uniform or mode=sync"
    if training.max_resampling:
        yield (
            f"coding.training.max_resampling={training.max_resampling:g} with coding.mode={mode}: verl "
            "replaces groups without a limit there: set it to 0, or coding.mode=sync"
        )
    if config.actor_rollout_ref.rollout.full_determinism:
        yield (
            f"{_ROLLOUT}.full_determinism=true: with coding.mode={mode} time decides which samples a "
            "step trains on: set it to false, or coding.mode=sync"
        )
    if mode is TrainingMode.separate_async:
        yield from _separate(config)


def _uncorrected(config: DictConfig, allowed: int) -> Iterator[str]:
    """Refuse to train on samples of older weights without a correction."""
    correction = config.algorithm.rollout_correction
    why = f"with coding.max_staleness={allowed} the loss is corrected for older weights"
    if correction.bypass_mode:
        yield f"{_CORRECTION}.bypass_mode=true: {why}, which verl does not do there: set it to false"
    if correction.rollout_is is None:
        yield f"{_CORRECTION}.rollout_is=null: {why}: set it to token or sequence"
    if not config.actor_rollout_ref.rollout.calculate_log_probs:
        yield f"{_ROLLOUT}.calculate_log_probs=false: {why}: set it to true"


def _separate(config: DictConfig) -> Iterator[str]:
    rollout = config.actor_rollout_ref.rollout
    if config.actor_rollout_ref.hybrid_engine:
        yield (
            "actor_rollout_ref.hybrid_engine=true: coding.mode=separate_async generates on separate "
            "devices: set it to false, or coding.mode=colocate_async"
        )
    if zero := [key for key in ("nnodes", "n_gpus_per_node") if not rollout[key]]:
        yield (
            f"{_ROLLOUT}.{zero[0]}={rollout[zero[0]]}: coding.mode=separate_async generates on separate "
            f"devices: set {_ROLLOUT}.nnodes and {_ROLLOUT}.n_gpus_per_node to those beside the trainer's"
        )
    if rollout.checkpoint_engine.backend == "naive":
        yield (
            f"{_ROLLOUT}.checkpoint_engine.backend=naive: cannot send to other devices: set it to nccl"
        )
    sync_steps = config.trainer.v1.separate_async.parameter_sync_step
    batch = OmegaConf.select(config, "data.train_batch_size")
    mini = config.actor_rollout_ref.actor.ppo_mini_batch_size
    if batch % mini == 0 and batch != sync_steps * mini:  # `checks` refuses what does not divide
        yield (
            f"trainer.v1.separate_async.parameter_sync_step={sync_steps}: data.train_batch_size={batch} "
            f"has {batch // mini} mini-batches of actor_rollout_ref.actor.ppo_mini_batch_size={mini}: "
            f"set it to {batch // mini}"
        )
