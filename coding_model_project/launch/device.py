"""The choice of a device for verl, and its environment variables, before verl is imported."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import psutil

from coding_model_project.runs import accelerators

CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_WAIT_POLICY": "PASSIVE",
    # Without this the first batch spends 20 s compiling for a model of a few million parameters.
    "TORCH_COMPILE_DISABLE": "1",
}

QUIET_ENVIRONMENT = {
    "HYDRA_FULL_ERROR": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Telemetry needs a network, which may be missing.
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # `processes.sweep` reads /proc/PID/environ, so setproctitle must not overwrite it.
    "SPT_NOENV": "1",
}


ON_LOOPBACK = {
    # Despite its name, Ray reads it on every system: 0 makes 127.0.0.1 the node's address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Variables of a run that has no other node: what it starts listens on loopback only."""

_OTHER_ENGINES = ("torchtitan", "veomni", "automodel", "mindspeed", "megatron")
"""Optional engines; verl warns in every process about each that is not installed."""
_EXPECTED_WARNINGS = [f"{name} engine is not available" for name in _OTHER_ENGINES]


def count_gpus() -> int:
    """Count the GPUs of this host that a training can use, without importing torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return accelerators.trainable(accelerators.find(), visible)


def default_hardware() -> str:
    """Return the hardware profile for this host: cpu, gpu_1x or gpu_8x."""
    gpus = count_gpus()
    return "cpu" if gpus == 0 else "gpu_8x" if gpus >= 8 else "gpu_1x"


def environment_of(device: str) -> dict[str, str]:
    """Return the environment variables that verl, vLLM and Ray read in a training's processes."""
    environment = dict(QUIET_ENVIRONMENT)
    if device == "cpu":
        environment |= CPU_ENVIRONMENT
        environment["OMP_NUM_THREADS"] = str(os.cpu_count() or 1)
        # With TransferQueue's default of 8, each of a step's 1,000 messages logs a warning.
        environment["TQ_NUM_THREADS"] = str(min(8, psutil.cpu_count(logical=False) or 1))
    environment["PYTHONWARNINGS"] = ",".join(f"ignore:{message}" for message in _EXPECTED_WARNINGS)
    return environment


def prepare_environment(device: str, *, alone: bool = False) -> None:
    """Set the variables of `environment_of(device)` that this process does not have yet.

    Args:
        alone: no other node takes part. This has an effect before Ray is imported.
    """
    for name, value in (environment_of(device) | (ON_LOOPBACK if alone else {})).items():
        os.environ.setdefault(name, value)
    for message in _EXPECTED_WARNINGS:  # this process has already read PYTHONWARNINGS
        warnings.filterwarnings("ignore", message=message)


def log_into(run_dir: Path) -> None:
    """Make this process's loggers write into the run's folder.

    W&B stays offline unless WANDB_MODE is set.
    """
    os.environ["VERL_FILE_LOGGER_PATH"] = str(run_dir / "metrics.jsonl")
    os.environ["TENSORBOARD_DIR"] = str(run_dir / "tensorboard")
    os.environ["WANDB_DIR"] = str(run_dir)
    os.environ.setdefault("WANDB_MODE", "offline")
