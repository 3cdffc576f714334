"""Runs verl's SFT trainer from a composed configuration.

torchrun -m coding_model_project.verl_ext.sft CONFIG.yaml      (what `train` starts for several ranks)
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import TrainingError
from coding_model_project.runs.folder import RunFolder, full_disk
from coding_model_project.runs.stopping import stop_requested
from coding_model_project.verl_ext.checks import check_sft
from coding_model_project.verl_ext.platform import check_cpu_plugin


def train(config: DictConfig) -> None:
    """Train until `trainer.total_training_steps`, resuming from the last checkpoint if there is one.

    One rank trains in this process, several under torchrun.

    Raises:
        ConfigError: batches that do not work out, or verl's CPU platform does not load.
        TrainingError: a training process failed.
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
        return _run_here(config)
    path = Path(config.coding.run_dir) / "config.yaml"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc_per_node={ranks}", "-m", __name__, str(path)]
    if subprocess.run(command, check=False).returncode:
        raise TrainingError(f"SFT on {ranks} ranks failed; the first rank's error is above")
    return None


def _run_here(config: DictConfig) -> None:
    try:
        run_rank(config)
    except (RuntimeError, OSError) as error:
        traceback.print_exc()
        run_dir = Path(config.coding.run_dir)
        reason = " ".join(str(error).split())
        raise TrainingError(f"SFT failed: {reason}{full_disk(run_dir)}") from error


def run_rank(config: DictConfig) -> None:
    """One rank's work; torchrun's environment variables say which."""
    check_cpu_plugin()
    from torch import distributed
    from verl.trainer.sft_trainer import SFTTrainer
    from verl.utils.distributed import (
        destroy_global_process_group,
        initialize_global_process_group,
    )

    from coding_model_project.verl_ext.checkpoints import SavedCheckpoints, wrap_save
    from coding_model_project.verl_ext.loggers import prepare_loggers

    config = DictConfig(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    initialize_global_process_group()
    if distributed.get_rank() == 0:
        prepare_loggers(config)
    trainer = SFTTrainer(config=config)
    _stop_when_asked(trainer, config)
    saved = SavedCheckpoints(config, print) if distributed.get_rank() == 0 else None
    if saved is not None:
        wrap_save(trainer.ckpt_handler, saved.saved)
    trainer.fit()
    if saved is not None:
        saved.finish()
    destroy_global_process_group()


def _stop_when_asked(trainer: Any, config: DictConfig) -> None:
    """Make the trainer's current step its last, once the run is asked to stop: verl then saves."""
    import torch
    from torch import distributed

    run = RunFolder(Path(config.coding.run_dir))
    log_dir = run.log_dir(len(run.attempts()))
    train_batch = trainer.training_client.train_batch

    def train_batch_then_look(*args: Any, **kwargs: Any) -> Any:
        output = train_batch(*args, **kwargs)
        # All ranks must agree, or some would wait for a step that the others do not take.
        asked = torch.tensor(int(stop_requested(log_dir)), device=trainer.device_name)
        distributed.all_reduce(asked, distributed.ReduceOp.MAX)
        if asked.item():
            trainer.total_training_steps = 0
        return output

    trainer.training_client.train_batch = train_batch_then_look


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    run_rank(OmegaConf.load(sys.argv[1]))  # type: ignore[arg-type]
