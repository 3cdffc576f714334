"""`coding.checkpoints`, `coding.mirror` and `coding.rollouts`: what a run keeps."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import key


@dataclass
class CheckpointsConfig:
    url: str | None = key(
        None,
        "Any fsspec URL (`s3://...`, `gs://...`, `file://...`) to copy checkpoints to in the "
        "background. null: they stay in the run's folder only.",
    )
    keep: int = key(3, "Complete checkpoints kept there.", unit="checkpoints")


@dataclass
class MirrorConfig:
    url: str | None = key(
        None,
        "Any fsspec URL to copy the run's folder to while it is written, without checkpoints: "
        "`runs`, `report` and `watch` read it from elsewhere, and an empty machine goes on from it. "
        "Secrets are masked. null: no copy.",
    )
    every_s: float = key(30.0, "Seconds between two rounds of copies, at most 60.", unit="s")


@dataclass
class RolloutsConfig:
    every: int = key(
        1,
        "Steps between those whose samples are kept in rollouts.jsonl; 0 keeps none.",
        unit="steps",
    )
    samples: int = key(
        8, "Samples per step shown in W&B and TensorBoard; 0 shows none.", unit="samples"
    )
    samples_every: int = key(5, "Steps between those tables.", unit="steps")
    trace_every: int = key(10, "Steps between timing traces; 0 writes none.", unit="steps")
