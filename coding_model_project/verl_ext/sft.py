"""Runs verl's SFT trainer from a composed configuration.

torchrun -m coding_model_project.verl_ext.sft CONFIG.yaml      (what `train` starts for several ranks)
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import UngradableError
from coding_model_project.verl_ext.checks import check_sft
from coding_model_project.verl_ext.platform import check_cpu_plugin


def train(config: DictConfig) -> None:
    """Train until `trainer.total_training_steps`, resuming from the last checkpoint if there is one.

    One rank trains in this process, several under torchrun.

    Raises:
        ConfigError: batches that do not work out, or verl's CPU platform does not load.
        UngradableError: a training process failed.
    """
    check_sft(config)
    ranks = config.trainer.n_gpus_per_node
    if ranks == 1:
        os.environ.update(
            RANK="0",
            LOCAL_RANK="0",
            WORLD_SIZE="1",
            LOCAL_WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(_free_port()),
        )
        return run_rank(config)
    path = Path(config.coding.run_dir) / "config.yaml"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ranks}", "-m", __name__, str(path)]
    if subprocess.run(command, check=False).returncode:
        raise UngradableError(f"SFT on {ranks} ranks failed; the first rank's error is above")
    return None


def run_rank(config: DictConfig) -> None:
    """One rank's work; torchrun's environment variables say which."""
    check_cpu_plugin()
    from verl.trainer.sft_trainer import run_sft

    from coding_model_project.verl_ext.metrics_file import append_metrics

    append_metrics()
    run_sft(OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    run_rank(OmegaConf.load(sys.argv[1]))  # type: ignore[arg-type]
