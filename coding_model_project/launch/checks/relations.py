"""Relations between keys: one function each, which returns a message if the keys conflict."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import TrainingMode, mode_of
from coding_model_project.launch.checks.machine_checks import ulysses
from coding_model_project.launch.sizing import config_file, model_section, shape_of
from coding_model_project.synthetic.tiny_model import TinyModelConfig

_get = OmegaConf.select
_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_LOGGERS = ("tensorboard", "wandb", "mlflow", "swanlab", "clearml", "trackio")
"""Loggers that import a package of their name, only once Ray is up."""


def too_short_a_rollout(config: DictConfig) -> str | None:
    needed, length = _sample_tokens(config), _get(config, f"{_ROLLOUT}.max_model_len")
    if needed is None or length is None or length >= needed:
        return None
    return (
        f"{_ROLLOUT}.max_model_len={length}: a prompt and a response need {_SAMPLE} = {needed}: set "
        f"{_ROLLOUT}.max_model_len={needed}, or lower one of these"
    )


def too_long_for_the_model(config: DictConfig) -> str | None:
    """Check lengths against the model's context if the model is local, cached, or about to be made."""
    sums = [("data.max_prompt_length", "data.max_response_length")]
    sums += [(f"{_ROLLOUT}.max_model_len",), ("data.max_length",)]
    for keys in sums:
        values = [_get(config, key) for key in keys]
        if None in values:
            continue
        model, positions = _positions(config)
        if positions is not None and sum(values) > positions:
            shown = " + ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
            return (
                f"{shown}: the model {model} has a context of {positions} tokens "
                f"(max_position_embeddings): stay within {positions}, or choose another model"
            )
    return None


def too_small_a_token_budget(config: DictConfig) -> str | None:
    """Check that the longest sample fits into a dynamic batch; otherwise a verl assertion fails."""
    parts = {
        f"{_ACTOR}.ppo_max_token_len_per_gpu": f"{_ACTOR}.use_dynamic_bsz",
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": f"{_ROLLOUT}.log_prob_use_dynamic_bsz",
    }
    needed, what = _sample_tokens(config), _SAMPLE
    if "engine" in config:
        parts = {"data.max_token_len_per_gpu": "data.use_dynamic_bsz"}
        needed, what = _get(config, "data.max_length"), "data.max_length"
        if "dpo" in config.coding:  # a pair of two answers
            needed, what = 2 * needed, f"2 × {what}"
    ranks = ulysses(config)[1]
    for key, switch in parts.items():
        budget = _get(config, key)
        if _get(config, switch) and budget and needed and budget * ranks < needed:
            least = -(-needed // ranks)
            return (
                f"{key}={budget}: the longest sample has {what} = {needed} tokens and must fit: set "
                f"it to {least} or more"
            )
    return None


def devices_that_do_not_divide(config: DictConfig) -> str | None:
    if _get(config, f"{_ROLLOUT}.nnodes"):
        return None  # a rollout with its own nodes does not share the trainer's devices
    devices, replica = _ranks(config), 1
    for kind in (
        "tensor_model_parallel_size",
        "data_parallel_size",
        "pipeline_model_parallel_size",
    ):
        size = _get(config, f"{_ROLLOUT}.{kind}") or 1
        replica *= size
        if devices % replica:
            return (
                f"{_ROLLOUT}.{kind}={size}: one copy of the model for generation takes {replica} "
                f"devices, which do not divide the {devices} of trainer.nnodes × "
                f"trainer.n_gpus_per_node: set {_ROLLOUT}.{kind} to a divisor"
            )
    return None


def micro_batches_that_do_not_divide(config: DictConfig) -> str | None:
    """Check micro-batch sizes, which verl's ranks assert only in the middle of the first step."""
    if _get(config, f"{_ACTOR}.use_dynamic_bsz"):
        return None
    mini, n = _get(config, f"{_ACTOR}.ppo_mini_batch_size"), _get(config, f"{_ROLLOUT}.n")
    micro = _get(config, f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    samples, left = divmod(mini * n, _ranks(config))
    if not micro or left or samples % micro == 0:
        return None
    return (
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu={micro}: a rank gets {samples} samples of a mini-batch, "
        f"not a multiple: set it to {math.gcd(samples, micro)}"
    )


def logger_without_its_package(config: DictConfig) -> str | None:
    value = _get(config, "trainer.logger")
    for name in value if OmegaConf.is_list(value) else [value]:
        if str(name) in _LOGGERS and importlib.util.find_spec(str(name)) is None:
            return (
                f"trainer.logger={name}: its package is not installed: pip install {name}, or leave "
                f"{name} out of trainer.logger"
            )
    return None


_SAMPLE = "data.max_prompt_length + data.max_response_length"


def _sample_tokens(config: DictConfig) -> int | None:
    """Return the maximum tokens of prompt plus response; None if the recipe does not generate."""
    lengths = [_get(config, f"data.max_{part}_length") for part in ("prompt", "response")]
    return sum(lengths) if all(length is not None for length in lengths) else None


def _positions(config: DictConfig) -> tuple[str | None, int | None]:
    """Return the starting model and its context in tokens, as verl reads it; None if unknown here."""
    section = model_section(config)
    path = _get(config, f"{section}.path")
    if path is None:
        return None, None
    if own := _get(config, f"{section}.override_config.max_position_embeddings"):
        return path, own
    if (file := config_file(path)) is not None:
        return path, _positions_of(file)
    return path, TinyModelConfig().max_positions if is_embedded(config, path) else None


def is_embedded(config: DictConfig, path: str) -> bool:
    """Return whether a path is of the embedded task set or its tiny model, which recipes make."""
    coding = config.coding
    folder = Path(coding.data_dir).expanduser().absolute()
    return coding.dataset is not None and Path(path).expanduser().absolute().parent == folder


def _positions_of(file: Path) -> int | None:
    try:
        found = json.loads(file.read_text())
    except ValueError:  # transformers reports the fault
        return None
    # Multimodal models nest the text model's shape one level deeper.
    value = found.get("max_position_embeddings") or found.get("text_config", {}).get(
        "max_position_embeddings"
    )
    return value if isinstance(value, int) else None


def heads_over_tensor_parallel(config: DictConfig) -> str | None:
    """Check that vLLM can split the heads evenly, and split or replicate the key heads."""
    key = f"{_ROLLOUT}.tensor_model_parallel_size"
    return _heads_over(config, key, _get(config, key) or 1)


def heads_over_ulysses(config: DictConfig) -> str | None:
    """Check that the size divides the ranks and the heads (verl's `apply_monkey_patch` asserts both)."""
    key, size = ulysses(config)
    if (ranks := _ranks(config)) % size:
        return f"{key}={size}: it must divide the {ranks} GPUs of the training: set it to a divisor"
    return _heads_over(config, key, size)


def _heads_over(config: DictConfig, key: str, size: int) -> str | None:
    """Check that a size divides both kinds of the model's heads; the remedy is the largest that does."""
    if size == 1 or (shape := shape_of(config)) is None:
        return None

    def fits(one: int) -> bool:
        heads, kv_heads = shape.heads, shape.kv_heads
        return heads % one == 0 and (kv_heads % one == 0 or one % kv_heads == 0)

    if fits(size):
        return None
    return (
        f"{key}={size}: the model has {shape.heads} attention heads and {shape.kv_heads} key heads, "
        f"which it must divide: set it to {next(one for one in range(size - 1, 0, -1) if fits(one))}"
    )


def samples_over_ranks(config: DictConfig) -> str | None:
    """Check that ranks split a mini-batch evenly (`TrainingWorker.train_mini_batch` asserts it)."""
    mini, n = _get(config, f"{_ACTOR}.ppo_mini_batch_size"), _get(config, f"{_ROLLOUT}.n")
    parts = _ranks(config) // ulysses(config)[1]
    if not (mini and n and parts) or mini * n % parts == 0:
        return None
    near = next(one for one in range(mini, mini + parts + 1) if one * n % parts == 0)
    return (
        f"{_ACTOR}.ppo_mini_batch_size={mini}: with {_ROLLOUT}.n={n} it makes {mini * n} samples, "
        f"which do not divide over {parts} groups of GPUs: set it to {near}"
    )


def rows_over_ranks(config: DictConfig) -> str | None:
    """Check that ranks split an SFT batch evenly: verl rounds a rank's share down silently."""
    batch, parts = config.data.train_batch_size, _ranks(config) // ulysses(config)[1]
    if parts == 0 or batch % parts == 0:
        return None
    return (
        f"data.train_batch_size={batch}: it does not divide over {parts} groups of GPUs: set it to "
        f"{-(-batch // parts) * parts}"
    )


def warm_up_of_the_mode(config: DictConfig) -> str | None:
    mode, allowed = mode_of(config)
    if not mode.asynchronous or (n := config.trainer.v1[mode].num_warmup_batches) <= allowed:
        return None
    return (
        f"trainer.v1.{mode}.num_warmup_batches={n}: samples requested that many steps ahead exceed "
        f"coding.max_staleness={allowed}: set it to {allowed} or less"
    )


def mini_batches_of_a_step(config: DictConfig) -> str | None:
    """Check that mini-batches divide a batch, and that a separate rollout syncs after all of them."""
    batch, key = config.data.train_batch_size, f"{_ACTOR}.ppo_mini_batch_size"
    mini, steps = _get(config, key), config.trainer.v1.separate_async.parameter_sync_step
    if fault := indivisible("data.train_batch_size", batch, key, mini):
        return fault
    separate = mode_of(config)[0] is TrainingMode.separate_async
    if not separate or batch == steps * mini:
        return None
    return (
        f"trainer.v1.separate_async.parameter_sync_step={steps}: data.train_batch_size={batch} has "
        f"{batch // mini} mini-batches of {key}={mini}: set it to {batch // mini}"
    )


def micro_batches_of_sft(config: DictConfig) -> str | None:
    if config.data.use_dynamic_bsz:
        return None
    batch, micro = config.data.train_batch_size, config.data.micro_batch_size_per_gpu
    key = "data.micro_batch_size_per_gpu"
    return indivisible("data.train_batch_size", batch, key, micro, _ranks(config))


def indivisible(key: str, value: int, by: str, step: int, ranks: int = 1) -> str | None:
    """Return a message unless `key` is a multiple of `by` × `ranks`."""
    if value % (step * ranks) == 0:
        return None
    near = max(step * ranks, round(value / (step * ranks)) * step * ranks)
    times = f" × {ranks} ranks" if ranks > 1 else ""
    return f"{key}={value} is not a multiple of {by}{times}: set {key}={near}"


def _ranks(config: DictConfig) -> int:
    trainer = _get(config, "trainer")
    return trainer.nnodes * trainer.n_gpus_per_node if trainer else 0


def broken(config: DictConfig) -> str | None:
    """Return the first conflict between keys; one fault may break several relations."""
    chosen: list[Callable[[DictConfig], str | None]] = []
    if "actor_rollout_ref" in config:
        chosen += (warm_up_of_the_mode, mini_batches_of_a_step)
    if "engine" in config:
        chosen += (micro_batches_of_sft, rows_over_ranks)
    chosen += (too_short_a_rollout, too_long_for_the_model, too_small_a_token_budget)
    if "actor_rollout_ref" in config:
        chosen += (devices_that_do_not_divide, micro_batches_that_do_not_divide)
        chosen += (heads_over_tensor_parallel, samples_over_ranks)
    chosen += (heads_over_ulysses, logger_without_its_package)
    return next((message for relation in chosen if (message := relation(config))), None)
