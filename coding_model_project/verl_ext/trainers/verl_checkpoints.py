"""Manifests of verl's checkpoints, and their upload if `coding.checkpoints.url` is set.

GRPO: verl creates a `CodingCheckpoints` in its TaskRunner's process and calls it after each save.
SFT: verl has no such hook; `wrap_save` adds one to its checkpoint handler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from coding_model_project.errors import ConfigError
from coding_model_project.runs.checkpoint_store import BackgroundUploader, open_store
from coding_model_project.runs.checkpoints import (
    MANIFEST,
    Say,
    checkpoints_in,
    remove_shells,
    step_of,
    write_manifest,
)
from coding_model_project.runs.starting_model import StartingModel
from coding_model_project.verl_ext.trainers.adapters import merge_exports

FINISH_TIMEOUT_S = 1800.0
"""Seconds that the end of a training waits for the upload of its last checkpoint."""

_ASYNC_KEY = "actor_rollout_ref.actor.checkpoint.async_save"


class SavedCheckpoints:
    """A handler for checkpoints that verl has written; only the first rank has one."""

    def __init__(self, config: DictConfig, say: Say) -> None:
        """Open the store, and upload the previous attempt's last checkpoint again.

        Raises:
            ConfigError: as `open_store`.
        """
        store = open_store(config, say)
        model: Any = OmegaConf.select(config, "actor_rollout_ref.model") or config.model
        self._start = StartingModel.of(cast(dict[str, Any], OmegaConf.to_container(model)))
        self._uploader = None if store is None else BackgroundUploader(store, say)
        if self._uploader is not None and config.trainer.resume_mode == "auto":
            # The previous attempt may have been killed before it uploaded its last checkpoint.
            for folder in checkpoints_in(Path(config.trainer.default_local_dir).absolute())[:1]:
                if (folder / MANIFEST).exists():
                    self._uploader.submit(folder)

    def saved(self, folder: Path, roles: Sequence[str] = ()) -> None:
        """Process a written checkpoint: complete its export, record it, remove shells, upload it.

        Args:
            roles: as in `write_manifest`.

        Raises:
            CheckpointError: its export could not be completed, it could not be recorded, or not all
                ranks' shards are on this node's disk. A failed upload is printed, and raised by `finish`.
        """
        folder = folder.absolute()
        merge_exports(folder)
        for export in (folder / "huggingface", folder / "actor" / "huggingface"):
            if export.exists():
                self._start.write_to(export)
        write_manifest(folder, roles=roles)
        remove_shells(folder.parent)
        if self._uploader is not None:
            self._uploader.submit(folder)

    def finish(self, timeout_s: float = FINISH_TIMEOUT_S) -> None:
        """Wait for uploads in progress.

        Raises:
            CheckpointError: the last checkpoint is not in the store.
        """
        if self._uploader is not None:
            self._uploader.close(timeout_s)


class CodingCheckpoints(CheckpointCallback):
    """The `trainer.checkpoint_callback_class`. The trainer calls `finish` at the end of training."""

    def __init__(self, config: DictConfig) -> None:
        """Open the store.

        Raises:
            ConfigError: as `open_store`, or the configuration saves checkpoints asynchronously.
        """
        super().__init__(config)
        if OmegaConf.select(config, _ASYNC_KEY, default=False):
            raise ConfigError(
                f"{_ASYNC_KEY}=true: a manifest needs a complete checkpoint; set the key to false"
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
        """See `SavedCheckpoints.finish`."""
        self._saved.finish(timeout_s)


def read_last_step() -> None:
    """Make verl's SFT trainer read the step that it resumes from at the end of the checkpoint's path.

    verl takes the path's first `global_step_N`, which may be in the name of the run's folder.
    """
    from verl.utils.checkpoint import checkpoint_handler

    checkpoint_handler.extract_step = lambda path: step_of(Path(path))


def wrap_save(ckpt_handler: Any, on_saved: Callable[[Path], None]) -> None:
    """Make verl's SFT checkpoint handler call `on_saved` after each save, on rank 0 only.

    verl's save ends in a barrier, so all ranks have written by then.
    """
    if ckpt_handler.rank != 0:
        return
    save = ckpt_handler.save_checkpoint

    def save_and_call(step: int) -> None:
        save(step=step)
        on_saved(Path(ckpt_handler.default_local_dir) / f"global_step_{step}")

    ckpt_handler.save_checkpoint = save_and_call
