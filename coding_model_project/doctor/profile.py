"""Estimates of whether a recipe's hardware profile fits a machine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.doctor.findings import Finding, ok, problem, warning
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks import checks
from coding_model_project.launch.checks.machine_checks import cpu_need, own_gpus, too_few_cpus
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.sizing import host, rollout, training
from coding_model_project.launch.sizing.machine import Machine
from coding_model_project.launch.sizing.plan import ROLLOUT, Plan, plan_of
from coding_model_project.launch.sizing.training import Part, total

TIGHT = 0.9
"""Share of the memory above which an estimate is a warning."""
_LEAST_SHARE = 0.2
"""Minimum share of a GPU for vLLM; below it, offloading the optimiser is the better remedy."""
_CARD_GB = 80.0
"""GPU memory in GiB for which the profiles are tuned; the default if a GPU reports none."""
_SHARE = f"{ROLLOUT}.gpu_memory_utilization"
_LOG_PROB_TOKENS = f"{ROLLOUT}.log_prob_max_token_len_per_gpu"
_TOKEN_STEP = 1024
_REMEDY = re.compile(r"(.+)[:;] (set .+)")
_LAST_PART = re.compile(r"(.+): (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report on a recipe."""

    findings: list[Finding]
    gpu: dict[str, list[Part]] = field(default_factory=dict)
    """Memory per GPU, by phase of a step."""


def report(
    recipe: str, profile: str, overrides: Sequence[str], machine: Machine, folder: Path | None
) -> Report:
    """Compare a composed profile with a machine.

    Args:
        folder: folder of future runs if the machine is this one, to check its disk.

    Raises:
        ConfigError: the profile or an override does not compose, or the model is unknown.
    """
    config = compose_recipe(recipe, [f"hardware={profile}", *overrides])
    findings = [*_values(config), *_devices(config, machine)]
    policy = "actor_rollout_ref" in config
    if policy:
        findings += _cpus(config, machine)
    if config.trainer.device != "cuda":
        return Report(findings=[*findings, _free(config, machine)])
    plan = plan_of(config)
    card = machine.gpu_memory_gb or _CARD_GB
    phases = {"update": training.update(plan)}
    findings.append(_update(plan, card))
    if policy:
        tokens = OmegaConf.select(config, _LOG_PROB_TOKENS)
        made = rollout.generation(config, plan, card)
        phases |= {"log-probs": training.log_probs(plan, tokens), "generation": made.parts}
        findings += [_log_probs(plan, tokens, card), _generation(config, plan, made, card)]
    findings += [_free(config, machine), _disk(plan, folder)]
    if not plan.flash:
        remedy = "the estimate is for PyTorch's sdpa; with flash-attn an update needs less"
        findings.append(warning("attention", "flash-attn is not installed here", remedy))
    return Report(findings=findings, gpu=phases)


def _values(config: DictConfig) -> Iterator[Finding]:
    try:
        checks.check_values(config)
    except ConfigError as error:
        yield problem("values", *_split(str(error)))
    else:
        yield ok("values", "batch sizes, lengths, heads and GPUs are divisible")


def _split(message: str) -> tuple[str, str]:
    """Split one of our messages into the problem and the remedy."""
    found = _REMEDY.fullmatch(message) or _LAST_PART.fullmatch(message)
    return (found[1], found[2]) if found else (message, "see the message")


def _devices(config: DictConfig, machine: Machine) -> Iterator[Finding]:
    if config.trainer.device != "cuda":
        return
    gpus, nodes = config.trainer.n_gpus_per_node, config.trainer.nnodes
    size = f" of {machine.gpu_memory_gb:.0f} GB" if machine.gpu_memory_gb else ""
    own = own_gpus(config)
    beside = f" and {own} for the rollout" if own else ""
    found = f"{machine.nodes} × {machine.gpus}{size}; the profile needs {nodes} × {gpus}{beside}"
    if machine.gpus >= gpus and machine.nodes >= nodes:
        if machine.gpus * machine.nodes >= gpus * nodes + own:
            yield ok("gpus", found)
        else:
            remedy = f"use more nodes, or lower {ROLLOUT}.nnodes or {ROLLOUT}.n_gpus_per_node"
            yield problem("gpus", found, remedy)
        return
    less = {"trainer.n_gpus_per_node": machine.gpus, "trainer.nnodes": machine.nodes}
    usual = {"trainer.n_gpus_per_node": gpus, "trainer.nnodes": nodes}
    keys = [f"{key}={less[key]}" for key in less if 0 < less[key] < usual[key]]
    remedy = (
        f"set {' '.join(keys)}"
        if machine.gpus and keys
        else "use hardware=cpu, or a machine with GPUs"
    )
    yield problem("gpus", found, remedy)


def _cpus(config: DictConfig, machine: Machine) -> Iterator[Finding]:
    need = cpu_need(config)
    own = OmegaConf.select(config, "ray_kwargs.ray_init.num_cpus")
    counted = own or machine.cpus * machine.nodes
    found = f"{need.total} reserved of {counted}{' (ray_init.num_cpus)' if own else ''}"
    if message := too_few_cpus(need, counted):
        yield problem("cpus", found, message.rpartition("set ")[2])
    elif not own and need.per_node > machine.cpus:
        remedy = (
            f"fewer trainer.n_gpus_per_node than {config.trainer.n_gpus_per_node}, or more CPUs"
        )
        yield problem("cpus", f"{need.per_node} reserved on a node of {machine.cpus}", remedy)
    else:
        yield ok("cpus", f"{found}; programs are judged on what the actors leave idle")


def _against(name: str, needed: float, has: float, note: str, remedy: str) -> Finding:
    found = f"about {needed:.0f} of {has:.0f} GB{note}"
    if needed > has:
        return problem(name, found, remedy)
    return warning(name, found, f"close: {remedy}") if needed > TIGHT * has else ok(name, found)


def _update(plan: Plan, card: float) -> Finding:
    needed = total(training.update(plan))
    sizes = range(plan.update_tokens - _TOKEN_STEP, plan.longest - 1, -_TOKEN_STEP)
    fit = next(
        (
            size
            for size in sizes
            if total(training.update(replace(plan, update_tokens=size))) <= TIGHT * card
        ),
        None,
    )
    per = plan.longest if "micro_batch" in plan.update_key else 1
    remedy = f"set {plan.update_key}={fit // per}" if fit and fit >= per else _smaller(plan)
    return _against(
        "update", needed, card, f" on a GPU, {plan.update_tokens} tokens at once", remedy
    )


def _smaller(plan: Plan) -> str:
    if not plan.lora_rank:
        return (
            "use more GPUs, shorter data.max_response_length or data.max_length, or experiment=lora"
        )
    return "use more GPUs, or shorter data.max_response_length"


def _log_probs(plan: Plan, tokens: int, card: float) -> Finding:
    needed = total(training.log_probs(plan, tokens))
    sizes = range(tokens - _TOKEN_STEP, plan.longest - 1, -_TOKEN_STEP)
    fit = next(
        (n for n in sizes if total(training.log_probs(plan, n)) <= TIGHT * card), plan.longest
    )
    return _against(
        "log-probs",
        needed,
        card,
        f" on a GPU, {tokens} tokens at once",
        f"set {_LOG_PROB_TOKENS}={fit}",
    )


def _generation(config: DictConfig, plan: Plan, made: rollout.Generation, card: float) -> Finding:
    needed, at_once = total(made.parts), min(made.sequences, made.samples)
    cache = f"KV cache {made.cache_tokens:,} tokens, {at_once} of {made.samples} samples at once"
    found = f"about {needed:.0f} of {card:.0f} GB on a GPU; {cache}"
    others_gb = needed - made.share_gb
    share = int((TIGHT * card - others_gb) / card * 100) / 100
    remedy = f"set {_SHARE}={share}" if share >= _LEAST_SHARE else _offload(plan)
    if needed > card:
        return problem("generation", found, remedy)
    length = config.actor_rollout_ref.rollout.max_model_len or plan.longest
    if made.cache_tokens < length:
        if share <= config.actor_rollout_ref.rollout.gpu_memory_utilization:
            remedy = f"raise {ROLLOUT}.tensor_model_parallel_size, or shorten max_model_len"
        return problem(
            "generation",
            f"{found}: too small for one sample of max_model_len={length} tokens",
            remedy,
        )
    if needed > TIGHT * card:
        return warning("generation", found, f"close: {remedy}")
    return ok("generation", found)


def _offload(plan: Plan) -> str:
    """Return the remedy that frees GPU memory if vLLM's share cannot be lowered."""
    engine = "actor_rollout_ref.actor.fsdp_config"
    if not plan.optimizer_offload:
        return f"set {engine}.optimizer_offload=true"
    if not plan.param_offload:
        return f"set {engine}.param_offload=true"
    return f"raise {ROLLOUT}.tensor_model_parallel_size, or use more GPUs"


def _free(config: DictConfig, machine: Machine) -> Finding:
    needed, has = host.needed_gb(config), machine.memory_gb
    found = f"coding.min_memory_gb={needed:g}, and {has:.0f} GB are free"
    if has >= needed:
        return ok("memory", found)
    return problem(
        "memory", found, f"free some, or set coding.min_memory_gb={int(has)} at your own risk"
    )


def _disk(plan: Plan, folder: Path | None) -> Finding:
    one, most = host.checkpoint_gb(plan), host.checkpoints_gb(plan)
    found = f"{one:.0f} GB per checkpoint, {most:.0f} for the {plan.kept} kept"
    if folder is None:
        return ok("checkpoints", found)
    free = shutil.disk_usage(folder).free / training.GIB
    found = f"{found}; {free:.0f} GB free here"
    if free >= most:
        return ok("checkpoints", found)
    return problem("checkpoints", found, "set coding.run_dir to a path on a larger disk")
