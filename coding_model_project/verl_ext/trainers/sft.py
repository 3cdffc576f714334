"""SFT with verl's own trainer, and DPO with `dpo_trainer`: in this process, or with several ranks under
torchrun, which this module runs as a process with its store on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import CodingModelError, TrainingError
from coding_model_project.extras import without_collections
from coding_model_project.http import free_port
from coding_model_project.runs.folder import RunFolder, full_disk, stop_requested
from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin


def train_sft(config: DictConfig) -> None:
    """Train on demonstrations, resuming from the last checkpoint if there is one.

    Raises:
        ConfigError: batch sizes do not divide, verl's CPU platform does not load, or the rows are invalid
            for the model.
        TrainingError: a training process failed.
    """
    from coding_model_project.launch.checks.checks import check_sft  # ranks need no checks

    check_sft(config)
    _train(config, "sft")


def train_dpo(config: DictConfig) -> None:
    """Train on pairs (`dpo_trainer`), resuming from the last checkpoint if there is one.

    Raises:
        ConfigError: keys, pairs or a checkpoint are invalid; see `train_sft`.
        TrainingError: a training process failed.
    """
    from coding_model_project.launch.checks.checks import check_dpo

    check_dpo(config)
    _train(config, "dpo")


def _train(config: DictConfig, kind: str) -> None:
    """Train until `trainer.total_training_steps`: one rank in this process, several under torchrun."""
    ranks = config.trainer.n_gpus_per_node
    run_dir = Path(config.coding.run_dir)
    if ranks > 1:
        command = [sys.executable, "-m", __name__, "--standalone", "--local-addr=127.0.0.1"]
        # Not the run's config.yaml, whose URLs lack their passwords.
        with NamedTemporaryFile("w", suffix=".yaml") as file:
            plain = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
            file.write(OmegaConf.to_yaml(OmegaConf.create(plain)))
            file.flush()
            command += [f"--nproc_per_node={ranks}", "-m", __name__, kind, file.name]
            ended = subprocess.run(command, check=False)
        if ended.returncode:
            raise TrainingError(
                f"{kind.upper()} on {ranks} ranks failed; the first rank's error is above"
            )
        return
    try:
        with the_only_rank():
            run_rank(config, kind)
    except (RuntimeError, OSError) as error:
        traceback.print_exc()
        reason = " ".join(str(error).split())
        raise TrainingError(f"{kind.upper()} failed: {reason}{full_disk(run_dir)}") from error


@contextmanager
def the_only_rank() -> Iterator[None]:
    """Set torchrun's environment variables for a single rank, and remove them on exit.

    Processes that start later must not inherit a rank.
    """
    variables = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)


def run_rank(config: DictConfig, kind: str) -> None:
    """Run one rank, which torchrun's environment variables identify."""
    with without_collections():
        check_cpu_plugin()
        import torch
        from torch import distributed
        from verl.utils.distributed import (
            destroy_global_process_group,
            initialize_global_process_group,
        )

        from coding_model_project.verl_ext.cluster.worker_setup import (
            bind_stores,
            load_weights_only,
        )
        from coding_model_project.verl_ext.trainers.loggers import prepare_loggers
        from coding_model_project.verl_ext.trainers.verl_checkpoints import (
            SavedCheckpoints,
            read_last_step,
            wrap_save,
        )

        bind_stores()
        load_weights_only()
        read_last_step()
        if kind == "dpo":
            from coding_model_project.verl_ext.trainers.dpo_trainer import DPOTrainer as Trainer
        else:
            from verl.trainer.sft_trainer import SFTTrainer as Trainer
    config = DictConfig(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    initialize_global_process_group()
    if distributed.get_rank() == 0:
        prepare_loggers(config)
    torch.manual_seed(config.trainer.seed)  # LoRA's first weights
    trainer: Any = Trainer(config=config)
    begin_epoch_anew(trainer)
    trainer.train_sampler.seed = config.trainer.seed  # verl's trainer does not set it
    _stop_when_asked(trainer, config)
    saved = SavedCheckpoints(config, print) if distributed.get_rank() == 0 else None
    if saved is not None:
        wrap_save(trainer.ckpt_handler, saved.saved)
    if trainer.resume_global_step < trainer.total_training_steps:  # else verl would train one more
        trainer.fit()
    if saved is not None:
        saved.finish()
    destroy_global_process_group()


def begin_epoch_anew(trainer: Any) -> None:
    """Give a trainer that resumes at an epoch's end a fresh loader.

    Such a checkpoint holds the state of an exhausted loader. It would yield nothing for the next epoch,
    which verl would then count as done. Call this after the checkpoint is loaded.
    """
    step = trainer.resume_global_step
    if step and step % trainer.steps_per_epoch == 0:
        trainer._build_dataloader()
        trainer.ckpt_handler.train_dataloader = trainer.train_dataloader


def _stop_when_asked(trainer: Any, config: DictConfig) -> None:
    """Make the current step the last one after a stop request; verl then saves a checkpoint."""
    import torch
    from torch import distributed

    run = RunFolder(Path(config.coding.run_dir))
    log_dir = run.log_dir(run.last_number)
    train_batch = trainer.training_client.train_batch

    def train_batch_then_check(*args: Any, **kwargs: Any) -> Any:
        output = train_batch(*args, **kwargs)
        # All ranks must agree, or some would wait for a step that the others skip.
        requested = torch.tensor(int(stop_requested(log_dir)), device=trainer.device_name)
        distributed.all_reduce(requested, distributed.ReduceOp.MAX)
        if requested.item():
            trainer.total_training_steps = 0
        return output

    trainer.training_client.train_batch = train_batch_then_check


def main() -> None:
    """Run torchrun, whose store listens on loopback, or one of its ranks: `sft|dpo CONFIG.yaml`."""
    if sys.argv[1].startswith("-"):
        from coding_model_project.verl_ext.cluster.worker_setup import bind_stores

        bind_stores()
        from torch.distributed import run  # its modules keep the store that they import

        run.main()
        return
    kind, file = sys.argv[1:]
    try:
        run_rank(cast(DictConfig, OmegaConf.load(file)), kind)
    except CodingModelError as error:
        print("error:", error, file=sys.stderr, flush=True)  # noqa: T201
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
