"""Size of the bucket in which verl sends the trainer's weights to the rollout."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from coding_model_project.launch.sizing.plan import ROLLOUT, number_bytes
from coding_model_project.launch.sizing.shapes import largest_tensor

BUCKET = f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
_USUAL_MB = 64


def needed_mb(config: DictConfig) -> int:
    """Return the size in MiB that holds the model's largest tensor; 0 if any size works, or unknown here.

    Without an accelerator verl copies tensors, in the trainer's `model_dtype`, into a bucket in shared
    memory, and asserts in the first sync that each fits. CUDA sends a larger tensor by itself
    (`verl.workers.rollout.vllm_rollout.bucketed_weight_transfer`).
    """
    path = OmegaConf.select(config, "actor_rollout_ref.model.path")
    if path is None or config.trainer.device != "cpu":
        return 0
    return -(-(largest_tensor(str(path)) or 0) * number_bytes(config) // 2**20)


def fill(config: DictConfig) -> None:
    """Set the bucket's size to what the model needs, unless it is set."""
    if OmegaConf.select(config, BUCKET) is None:
        OmegaConf.update(config, BUCKET, max(_USUAL_MB, needed_mb(config)))
