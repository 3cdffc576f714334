"""Checks of the Ray cluster that a training joins, or of the machine that it starts on.

Without them verl waits forever or fails late. Ray is not imported.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.contained import is_ours
from coding_model_project.errors import ClusterError, ConfigError

ADDRESS = "ray_kwargs.ray_init.address"
_TIMEOUT_S = 10.0


def joined_ray(config: DictConfig) -> str | None:
    """Return the address of the Ray cluster that `ray.init` joins; None if it starts its own."""
    address = OmegaConf.select(config, ADDRESS) or "auto"
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        address = _recorded()
    return None if address in (None, "local") else address


def check_head(config: DictConfig) -> None:
    """Check that the Ray cluster that a training joins answers.

    Raises:
        ConfigError: the address is malformed, or is a Ray Client address.
        ClusterError: nothing answers there; the message names the setting that gave the address.
    """
    if (address := joined_ray(config)) is not None:
        check_address(address, f"{_named_by(config)}{address}")
        check_answers(address, f"{_named_by(config)}{address}", f", or set +{ADDRESS}=local")
    elif (record := _record()).exists() and not is_ours(record):
        print(f"{record} is another user's: starting a Ray instead of joining theirs", flush=True)


def check_address(address: str, named: str) -> None:
    """Check that an address is that of a Ray head.

    Args:
        named: the setting and the address, for the error message.

    Raises:
        ConfigError: the address has another form, such as a Ray Client address.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise ConfigError(
            f"{named}: must be HOST:PORT of a Ray head, such as 10.0.0.1:6379, without ray://; run the "
            "command on a node of the cluster"
        )


def check_answers(address: str, named: str, otherwise: str = "") -> None:
    """Check that something listens at a head's address; Ray itself retries for half a minute.

    Args:
        named: as in `check_address`.
        otherwise: an alternative fix, appended to the error message.

    Raises:
        ClusterError: nothing answers.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        why = getattr(error, "strerror", None) or error
        raise ClusterError(
            f"{named}: no Ray head answers there ({why}); start one with "
            f"`ray start --head --port={port}`, or correct the address{otherwise}"
        ) from error


def _named_by(config: DictConfig) -> str:
    if OmegaConf.select(config, ADDRESS) not in (None, "auto"):
        return f"{ADDRESS}="
    given = os.environ.get("RAY_ADDRESS", "auto") not in ("", "auto")
    return "RAY_ADDRESS=" if given else f"{_record()}: "


def _record() -> Path:
    """Return the file in which `ray start` records its address."""
    root = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(root, "ray", "ray_current_cluster")


def _recorded() -> str | None:
    """Return the recorded address, unless another user of this machine wrote it."""
    record = _record()
    try:
        return (record.read_text().strip() or None) if is_ours(record) else None
    except OSError:
        return None


# ── the CPUs and GPUs that verl reserves, and the attention of this host ──────────────────────────────


UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
ROLLOUT = "actor_rollout_ref.rollout"
_ATTENTION = "override_config.attn_implementation"
FLASH = "flash_attention_2"
"""verl's default (`verl.workers.config.model`)."""

CPUS_OF_A_GPU = 3
"""CPUs in the bundle of each training GPU: `max_colocate_count` of verl's `ResourcePoolManager`."""
CPUS_OF_A_ROLLOUT_GPU = 2
"""The same where the rollout has GPUs of its own (`verl.workers.rollout.replica`)."""


def own_gpus(config: DictConfig) -> int:
    """Return the number of the rollout's own GPUs: those of `coding.mode=separate_async`."""
    rollout = OmegaConf.select(config, ROLLOUT)
    return (rollout.nnodes or 0) * rollout.n_gpus_per_node if rollout else 0


def reserved_cpus(config: DictConfig) -> tuple[int, int]:
    """Return the CPUs that verl makes Ray reserve, all at once: for its storage units, and for all else.

    Each of TransferQueue's storage units takes one, its controller one, and bundles of the training GPUs
    and of the rollout's own the rest; a node's bundles are packed strictly. TaskRunner, judges, vLLM's
    servers, agent loops and load balancers are default Ray actors, which hold no CPU while they run. So a
    run trains even if all CPUs are reserved (an e2e test does).
    """
    training = config.trainer.nnodes * config.trainer.n_gpus_per_node
    bundles = CPUS_OF_A_GPU * training + CPUS_OF_A_ROLLOUT_GPU * own_gpus(config)
    return OmegaConf.select(config, UNITS), bundles + 1


def choose_attention(config: DictConfig, model_key: str) -> str:
    """Select PyTorch's sdpa attention for a GPU training if flash-attn is not installed.

    verl 0.9.1 needs flash-attn only for its default attention and for Ulysses sequence parallelism:
    removing padding, log-probabilities and entropy fall back to PyTorch
    (`verl.utils.attention_utils`, `verl.utils.torch_functional`). transformers then masks packed samples
    from each other, so the results are the same, at the cost of attending over the whole micro-batch.

    Args:
        model_key: the model's section, "actor_rollout_ref.model" or "model".

    Returns:
        A line to print, or an empty string if nothing changed.

    Raises:
        ConfigError: flash-attn is missing, and the configuration needs it.
    """
    if config.trainer.device != "cuda" or joined_ray(config):
        return ""  # the nodes' environments are not this one
    key, installed = f"{model_key}.{_ATTENTION}", importlib.util.find_spec("flash_attn") is not None
    chosen = OmegaConf.select(config, key)
    build = "build flash-attn as requirements/gpu.txt says"
    size_key, size = ulysses(config)
    if size > 1 and not (installed and chosen in (None, FLASH)):
        # verl gathers the other ranks' tokens only in flash attention; any other sees its own rank's.
        raise ConfigError(
            f"{size_key}={size}: sequence parallelism needs {key}={FLASH}: {build}, or set {size_key}=1"
        )
    if installed or chosen not in (None, FLASH):
        return ""
    if chosen == FLASH:
        raise ConfigError(
            f"{key}={FLASH}: flash-attn is not installed: {build}, or set ++{key}=sdpa"
        )
    OmegaConf.update(config, key, "sdpa", force_add=True)
    return f"{key}=sdpa (flash-attn is not installed; {build} for speed)"


def ulysses(config: DictConfig) -> tuple[str, int]:
    """Return the key of the sequence-parallel size, and the size."""
    actor = "actor_rollout_ref.actor"
    keys = [
        f"{section}.ulysses_sequence_parallel_size" for section in (actor, f"{actor}.fsdp_config")
    ]
    found = [
        (key, OmegaConf.select(config, key) or 1)
        for key in [*keys, "engine.ulysses_sequence_parallel_size"]
    ]
    return max(found, key=lambda pair: pair[1])
