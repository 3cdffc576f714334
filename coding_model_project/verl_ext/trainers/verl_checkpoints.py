"""Gives verl's checkpoints their manifests, and uploads them if `coding.checkpoints.url` is set.

GRPO: verl makes a `CodingCheckpoints` in its TaskRunner's process and calls it after each save.
SFT: verl has no such hook; `wrap_save` adds one to its checkpoint handler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from coding_model_project.errors import ConfigError
from coding_model_project.runs.checkpoint_store import BackgroundUploader, open_store
from coding_model_project.runs.checkpoints import (
    MANIFEST,
    Say,
    checkpoints_in,
    remove_shells,
    write_manifest,
)
from coding_model_project.verl_ext.trainers.adapters import merge_exports

FINISH_TIMEOUT_S = 1800.0
"""How long the end of a training waits for its last checkpoint's upload."""

_ASYNC_KEY = "actor_rollout_ref.actor.checkpoint.async_save"


class SavedCheckpoints:
    """What happens to a checkpoint once verl has written it. Of all ranks, only the first has one."""

    def __init__(self, config: DictConfig, say: Say) -> None:
        """
        Raises:
            ConfigError: as `open_store`.
        """
        store = open_store(config, say)
        self._uploader = None if store is None else BackgroundUploader(store, say)
        if self._uploader is not None and config.trainer.resume_mode == "auto":
            # The attempt before may have been killed before its last one was uploaded.
            for folder in checkpoints_in(Path(config.trainer.default_local_dir).absolute())[:1]:
                if (folder / MANIFEST).exists():
                    self._uploader.submit(folder)

    def saved(self, folder: Path, roles: Sequence[str] = ()) -> None:
        """A checkpoint is written: merge LoRA in its export, record it, tidy up after verl, and upload.

        Args:
            roles: as `write_manifest`.

        Raises:
            CheckpointError: it could not be recorded, or not all ranks' shards are on this node's disk.
                A failed upload is said, and raised by `finish`.
        """
        folder = folder.absolute()
        merge_exports(folder)
        write_manifest(folder, roles=roles)
        remove_shells(folder.parent)
        if self._uploader is not None:
            self._uploader.submit(folder)

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Wait for what is being uploaded.

        Raises:
            CheckpointError: the last checkpoint is not in the store.
        """
        if self._uploader is not None:
            self._uploader.close(timeout_s)


class CodingCheckpoints(CheckpointCallback):
    """For `trainer.checkpoint_callback_class`. The trainer calls `finish` at the end of training."""

    def __init__(self, config: DictConfig) -> None:
        """
        Raises:
            ConfigError: as `open_store`, or verl is to call before a checkpoint is written.
        """
        super().__init__(config)
        if OmegaConf.select(config, _ASYNC_KEY, default=False):
            raise ConfigError(
                f"{_ASYNC_KEY}=true: a manifest needs a checkpoint that is written; set it to false"
            )
        self._saved = SavedCheckpoints(config, print)

    def on_save(
        self,
        trainer: Any,
        global_step: int,
        checkpoint_dir: str,
        async_save: bool = False,
        **kwargs: Any,
    ) -> None:
        self._saved.saved(Path(checkpoint_dir), ["actor"])

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """As `SavedCheckpoints.finish`."""
        self._saved.finish(timeout_s)


def wrap_save(ckpt_handler: Any, on_saved: Callable[[Path], None]) -> None:
    """Make verl's SFT checkpoint handler call back after each save, on rank 0 only.

    verl's save ends in a barrier, so that by then all ranks have written.
    """
    if ckpt_handler.rank != 0:
        return
    save = ckpt_handler.save_checkpoint

    def save_and_tell(step: int) -> None:
        save(step=step)
        on_saved(Path(ckpt_handler.default_local_dir) / f"global_step_{step}")

    ckpt_handler.save_checkpoint = save_and_tell
