"""A recipe's hardware profile against a machine, without the machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.doctor import Finding, Status, judged, ok, problem, warning
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import checks
from coding_model_project.launch.checks.machine_checks import (
    counted_cpus,
    cpu_need,
    own_gpus,
    too_few_cpus,
)
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.sizing import (
    GIB,
    ROLLOUT,
    Training,
    free_memory_gb,
    needed_gb,
)
from coding_model_project.runs import accelerators

TIGHT = 0.9
"""Share of the memory above which a need is a warning."""
_LEAST_SHARE = 0.2
"""Minimum share of a GPU for vLLM; below it, offloading the optimiser is the better remedy."""
_CARD_GB = 80.0
"""GPU memory in GiB for which the profiles are tuned; the default if a GPU reports none."""
_TOKEN_STEP = 1024
_REMEDY = re.compile(r"(.+)[:;] (set .+)")
_LAST_PART = re.compile(r"(.+): (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One of `nodes` equal hosts; memory in GiB."""

    gpus: int
    gpu_memory_gb: float | None
    """Memory per GPU; None without GPUs."""
    cpus: int
    """CPUs as Ray counts them."""
    memory_gb: float
    """Free memory of this host, or total memory of a described one."""
    nodes: int = 1


def this_machine() -> Machine:
    """Measure this host. Of unequal GPUs, the smallest memory counts."""
    found = accelerators.measure()
    sizes = [gpu.memory_gb for gpu in found if gpu.memory_gb is not None]
    return Machine(
        gpus=accelerators.trainable(found, os.environ.get("CUDA_VISIBLE_DEVICES")),
        gpu_memory_gb=min(sizes, default=None),
        cpus=counted_cpus(),
        memory_gb=free_memory_gb(),
    )


def compared(
    recipe: str, profile: str, overrides: Sequence[str], machine: Machine, folder: Path | None
) -> Iterator[Finding]:
    """Compare a composed profile with a machine.

    Args:
        folder: folder of future runs if the machine is this one, to check its disk.

    Raises:
        ConfigError: the profile or an override does not compose, or the model is unknown.
    """
    config = compose_recipe(recipe, [f"hardware={profile}", *overrides])
    policy = "actor_rollout_ref" in config
    card = machine.gpu_memory_gb or _CARD_GB
    training = Training(config) if config.trainer.device == "cuda" else None
    yield _values(config)
    if training:
        yield _devices(config, machine)
    if policy:
        yield _cpus(config, machine)
    if training:
        yield _update(training, card)
    if training and policy:
        yield _generation(config, training, card)
    yield _free(config, machine)
    if training:
        yield _disk(training, folder)


def _values(config: DictConfig) -> Finding:
    try:
        checks.check_values(config)
    except ConfigError as error:
        said = str(error)
        parts = _REMEDY.fullmatch(said) or _LAST_PART.fullmatch(said)
        return problem("values", *(parts.groups() if parts else (said, "see the message")))
    return ok("values", "batch sizes, lengths, heads and GPUs are divisible")


def _devices(config: DictConfig, machine: Machine) -> Finding:
    gpus, nodes = config.trainer.n_gpus_per_node, config.trainer.nnodes
    size = f" of {machine.gpu_memory_gb:.0f} GB" if machine.gpu_memory_gb else ""
    own = own_gpus(config)
    beside = f" and {own} for the rollout" if own else ""
    found = f"{machine.nodes} × {machine.gpus}{size}; the profile needs {nodes} × {gpus}{beside}"
    if machine.gpus >= gpus and machine.nodes >= nodes:
        if machine.gpus * machine.nodes >= gpus * nodes + own:
            return ok("gpus", found)
        remedy = f"use more nodes, or lower {ROLLOUT}.nnodes or {ROLLOUT}.n_gpus_per_node"
        return problem("gpus", found, remedy)
    less = {"trainer.n_gpus_per_node": machine.gpus, "trainer.nnodes": machine.nodes}
    usual = {"trainer.n_gpus_per_node": gpus, "trainer.nnodes": nodes}
    keys = [f"{key}={less[key]}" for key in less if 0 < less[key] < usual[key]]
    lowered = machine.gpus and keys
    remedy = f"set {' '.join(keys)}" if lowered else "use hardware=cpu, or a machine with GPUs"
    return problem("gpus", found, remedy)


def _cpus(config: DictConfig, machine: Machine) -> Finding:
    need = cpu_need(config)
    own = OmegaConf.select(config, "ray_kwargs.ray_init.num_cpus")
    counted = own or machine.cpus * machine.nodes
    found = f"{need.total} reserved of {counted}{' (ray_init.num_cpus)' if own else ''}"
    if message := too_few_cpus(need, counted):
        return problem("cpus", found, message.rpartition("set ")[2])
    if not own and need.per_node > machine.cpus:
        remedy = (
            f"fewer trainer.n_gpus_per_node than {config.trainer.n_gpus_per_node}, or more CPUs"
        )
        return problem("cpus", f"{need.per_node} reserved on a node of {machine.cpus}", remedy)
    return ok("cpus", f"{found}; programs are judged on what the actors leave idle")


def _against(name: str, needed: float, has: float, found: str, remedy: str) -> Finding:
    if needed > has:
        return problem(name, found, remedy)
    return warning(name, found, f"close: {remedy}") if needed > TIGHT * has else ok(name, found)


def _update(training: Training, card: float) -> Finding:
    """Compare states and one micro-batch with a GPU; the remedy is the largest one that fits."""
    tokens, longest = training.update_tokens, training.longest
    sizes = range(tokens - _TOKEN_STEP, longest - 1, -_TOKEN_STEP)
    fit = next((size for size in sizes if training.update_gb(size) <= TIGHT * card), 0)
    per = longest if "micro_batch" in training.update_key else 1
    smaller = "use more GPUs, or shorter data.max_response_length or data.max_length"
    if fit and fit >= per:
        smaller = f"set {training.update_key}={fit // per}"
    elif not training.lora_rank:
        smaller = f"{smaller}, or experiment=lora"
    needed = training.update_gb()
    found = f"about {needed:.0f} of {card:.0f} GB on a GPU, {tokens} tokens at once"
    return _against("update", needed, card, found, smaller)


def _generation(config: DictConfig, training: Training, card: float) -> Finding:
    """Compare vLLM's share, beside what the trainer leaves on the GPU, with a GPU.

    vLLM takes `gpu_memory_utilization` × the GPU's memory, and refuses to start if less is free
    (`vllm.v1.worker.gpu_worker`), or if one sample does not fit into its cache.
    """
    share = OmegaConf.select(config, f"{ROLLOUT}.gpu_memory_utilization")
    left = 0.0 if own_gpus(config) else training.resident_gb
    most = int((TIGHT * card - left) / card * 100) / 100
    lower = f"set {ROLLOUT}.gpu_memory_utilization={most}"
    found = (
        f"{share * card:.0f} of {card:.0f} GB on a GPU for vLLM, beside {left:.0f} of weights and "
        "moments"
    )
    remedy = lower if most >= _LEAST_SHARE else _offload(training)
    return _against("generation", share * card + left, card, found, remedy)


def _offload(training: Training) -> str:
    """Return the remedy that frees GPU memory if vLLM's share cannot be lowered."""
    engine = "actor_rollout_ref.actor.fsdp_config"
    if not training.optimizer_offload:
        return f"set {engine}.optimizer_offload=true"
    if not training.param_offload:
        return f"set {engine}.param_offload=true"
    return f"raise {ROLLOUT}.tensor_model_parallel_size, or use more GPUs"


def _free(config: DictConfig, machine: Machine) -> Finding:
    needed, has = needed_gb(config), machine.memory_gb
    found = f"coding.min_memory_gb={needed:g}, and {has:.0f} GB are free"
    remedy = f"free some, or set coding.min_memory_gb={int(has)} at your own risk"
    return judged("memory", has >= needed, found, remedy, Status.problem)


def _disk(training: Training, folder: Path | None) -> Finding:
    """Check the disk of the checkpoints; verl removes the oldest before each write."""
    one, most = training.checkpoint_gb, training.checkpoint_gb * training.kept
    found = f"{one:.0f} GB per checkpoint, {most:.0f} for the {training.kept} kept"
    if folder is None:
        return ok("checkpoints", found)
    free = shutil.disk_usage(folder).free / GIB
    found = f"{found}; {free:.0f} GB free here"
    remedy = "set coding.run_dir to a path on a larger disk"
    return judged("checkpoints", free >= most, found, remedy, Status.problem)
