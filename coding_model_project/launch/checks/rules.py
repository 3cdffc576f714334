"""Rules for values, checked without verl, which reports them a minute later or never.

There are three tables: RANGES of numbers, CHOICES of words, and RELATIONS between keys. A rule skips
keys that a recipe does not have, so one table serves all recipes.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import relations

_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A range of valid numbers for some keys."""

    expected: str
    holds: Callable[[Any], bool]
    keys: tuple[str, ...]
    """Full keys. A trailing `?` marks a key that may be null."""
    of: str = ""
    """A top-level key that only the rule's trainer has; empty for all trainers."""

    def broken(self, config: DictConfig) -> Iterator[str]:
        """Yield a message for each key that is out of range."""
        if self.of and self.of not in config:
            return
        for key in self.keys:
            value = OmegaConf.select(config, key.rstrip("?"), default=_ABSENT)
            if value is _ABSENT or (value is None and key.endswith("?")):
                continue
            if isinstance(value, bool) or not self.holds(value):
                shown = "null" if value is None else value
                yield f"{key.rstrip('?')}={shown}: set it to {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The words that a key accepts."""

    key: str
    words: tuple[str, ...]
    extensible: bool = False
    """True if the user's own modules may register more words with verl."""

    def broken(self, config: DictConfig) -> Iterator[str]:
        """Yield a message for each unknown word; the value may be one word or a list."""
        value = OmegaConf.select(config, self.key, default=_ABSENT)
        if value is _ABSENT or value is None or (self.extensible and _has_own_modules(config)):
            return
        for word in value if OmegaConf.is_list(value) else [value]:
            if word not in self.words:
                close = difflib.get_close_matches(str(word), self.words, n=1, cutoff=0.5)
                near = f"did you mean {close[0]}? " if close else ""
                yield f"{self.key}={word}: {near}choose from {', '.join(self.words)}"


def _has_own_modules(config: DictConfig) -> bool:
    library = OmegaConf.select(config, "actor_rollout_ref.model.external_lib")
    return bool(library or os.environ.get("VERL_USE_EXTERNAL_MODULES"))


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and value >= least


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and value == value  # not nan


_ACTOR = "actor_rollout_ref.actor"
_REF = "actor_rollout_ref.ref"
_ROLLOUT = "actor_rollout_ref.rollout"

RANGES = (
    Range(
        expected="a whole number of at least 1",
        holds=lambda value: _whole(value, 1),
        keys=(
            "coding.bash.rooms",
            "coding.checkpoints.keep",
            "coding.rollouts.samples_every",
            "coding.sandbox.max_concurrency",
            "coding.sandbox.workers?",
            "coding.tinycode.sft_demonstrations",
            "data.gen_batch_size?",
            "data.max_length",
            "data.max_prompt_length",
            "data.max_response_length",
            "data.max_token_len_per_gpu",
            "data.micro_batch_size_per_gpu",
            "data.train_batch_size",
            "data.val_batch_size?",
            "engine.ulysses_sequence_parallel_size",
            "reward.num_workers",
            "trainer.max_actor_ckpt_to_keep?",
            "trainer.max_ckpt_to_keep?",
            "trainer.max_critic_ckpt_to_keep?",
            "trainer.n_gpus_per_node",
            "trainer.nnodes",
            "trainer.total_epochs",
            "trainer.total_training_steps?",
            f"{_ACTOR}.ppo_epochs",
            f"{_ACTOR}.ppo_max_token_len_per_gpu",
            f"{_ACTOR}.ppo_micro_batch_size?",
            f"{_ACTOR}.ppo_micro_batch_size_per_gpu?",
            f"{_ACTOR}.ppo_mini_batch_size",
            f"{_ACTOR}.ulysses_sequence_parallel_size",
            f"{_REF}.log_prob_max_token_len_per_gpu",
            f"{_REF}.log_prob_micro_batch_size_per_gpu?",
            f"{_ROLLOUT}.agent.num_workers",
            f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes?",
            f"{_ROLLOUT}.data_parallel_size",
            f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
            f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu?",
            f"{_ROLLOUT}.max_model_len?",
            f"{_ROLLOUT}.max_num_batched_tokens",
            f"{_ROLLOUT}.max_num_seqs",
            f"{_ROLLOUT}.n",
            f"{_ROLLOUT}.pipeline_model_parallel_size",
            f"{_ROLLOUT}.tensor_model_parallel_size",
            f"{_ROLLOUT}.val_kwargs.n",
        ),
    ),
    Range(
        expected="a whole number of at least 0",
        holds=lambda value: _whole(value, 0),
        keys=(
            "coding.bash.turns",
            "coding.max_staleness?",
            "coding.repair.rounds",
            "coding.rollouts.every",
            "coding.rollouts.samples",
            "coding.rollouts.trace_every",
            "coding.seed",
            "coding.tinycode.seed",
            "data.dataloader_num_workers",
            "data.num_workers",
            "model.lora_rank",
            "actor_rollout_ref.model.lora_rank",
        ),
    ),
    Range(
        expected="a whole number, at least 1, or -1 for never",
        holds=lambda value: _whole(value, -1),
        keys=("trainer.save_freq", "trainer.test_freq"),
        of="actor_rollout_ref",
    ),
    Range(
        # verl's SFT trainer computes the step modulo this value, so 0 fails.
        expected="a whole number of at least 1, after_each_epoch, or -1 for never",
        holds=lambda value: (
            value in (-1, "after_each_epoch") or _whole(value, 1)  # the epoch's last step
        ),
        keys=("trainer.save_freq", "trainer.test_freq"),
        of="engine",
    ),
    Range(
        expected="a number above 0",
        holds=lambda value: _number(value) and value > 0,
        keys=(
            "coding.dpo.beta",
            "coding.sandbox.timeout_s",
            "coding.weight_sync_timeout_s",
            "optim.clip_grad?",
            f"{_ACTOR}.grad_clip?",
            f"{_ACTOR}.optim.clip_grad?",
            f"{_ROLLOUT}.temperature",
        ),
    ),
    Range(
        expected="a number of at least 0",
        holds=lambda value: _number(value) and value >= 0,
        keys=(
            "algorithm.kl_ctrl.kl_coef",
            "coding.min_memory_gb?",
            "coding.sandbox.retry_s",
            "optim.lr",
            "optim.weight_decay?",
            f"{_ACTOR}.clip_ratio",
            f"{_ACTOR}.clip_ratio_high",
            f"{_ACTOR}.clip_ratio_low",
            f"{_ACTOR}.kl_loss_coef",
            f"{_ACTOR}.optim.lr",
            f"{_ACTOR}.optim.weight_decay?",
            f"{_ROLLOUT}.val_kwargs.temperature",
        ),
    ),
    Range(
        expected="a share between 0 and 1",
        holds=lambda value: _number(value) and 0 <= value <= 1,
        keys=(
            "actor_rollout_ref.model.lora.dropout?",
            "algorithm.gamma",
            "algorithm.lam",
            "coding.repair.discount",
            "coding.sandbox.max_failure_rate",
            "model.lora.dropout?",
            "optim.lr_warmup_steps_ratio?",
            "optim.min_lr_ratio?",
            f"{_ACTOR}.optim.lr_warmup_steps_ratio?",
            f"{_ACTOR}.optim.min_lr_ratio?",
        ),
    ),
    Range(
        expected="a share of at least 0 and below 0.5",
        holds=lambda value: _number(value) and 0 <= value < 0.5,
        keys=("coding.dpo.label_smoothing",),
    ),
    Range(
        expected="a share above 0, at most 1",
        holds=lambda value: _number(value) and 0 < value <= 1,
        keys=(
            f"{_ROLLOUT}.gpu_memory_utilization",
            f"{_ROLLOUT}.top_p",
            f"{_ROLLOUT}.val_kwargs.top_p",
        ),
    ),
)

CHOICES = (
    Choice(
        key="algorithm.adv_estimator",
        words=(*relations.GROUP_ESTIMATORS, *relations.OTHER_ESTIMATORS),
        extensible=True,
    ),
    Choice(
        key="trainer.logger",
        words=(
            "console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "vemlp_wandb", "clearml",
            "trackio", "rl_insight",
        ),
    ),
    Choice(
        key=f"{_ACTOR}.loss_agg_mode",
        words=("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
               "seq-mean-token-sum-norm"),
    ),
    Choice(
        key=f"{_ACTOR}.policy_loss.loss_mode",
        words=("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean",
               "dro", "cispo", "bypass_mode"),
        extensible=True,
    ),
    Choice(key="trainer.resume_mode", words=("auto", "disable", "resume_path")),
    Choice(key="data.truncation", words=("error", "left", "right", "middle")),
    Choice(key="optim.lr_scheduler_type", words=("constant", "cosine")),
    Choice(key=f"{_ACTOR}.optim.lr_scheduler_type", words=("constant", "cosine")),
)  # fmt: skip
"""The words that verl registers; a test compares."""


def broken(config: DictConfig) -> Iterator[str]:
    """Yield a line for each key outside of its range or choice, with the valid values."""
    for rule in (*RANGES, *CHOICES):
        yield from rule.broken(config)


def check_relations(config: DictConfig) -> None:
    """Check keys against each other.

    Raises:
        ConfigError: they do not fit together.
    """
    for relation in relations.RELATIONS:  # one fault may break several of them
        if message := relation(config):
            raise ConfigError(message)
