"""`coding.checkpoints`, `coding.mirror` and `coding.rollouts`: settings of a run's records."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import key


@dataclass
class CheckpointsConfig:
    url: str | None = key(
        None,
        "fsspec URL (`s3://...`, `gs://...`, `file://...`) to copy checkpoints to in the background. "
        "null: checkpoints stay in the run's folder only.",
    )
    keep: int = key(3, "Number of complete checkpoints to keep at the URL.", unit="checkpoints")


@dataclass
class MirrorConfig:
    url: str | None = key(
        None,
        "fsspec URL to copy the run's folder to during the run, without checkpoints. `runs`, `report` "
        "and `watch` can read the copy, and a new machine can resume from it. Secrets are masked. null: "
        "no copy.",
    )
    every_s: float = key(30.0, "Seconds between copies, 1 to 60.", unit="s")


@dataclass
class RolloutsConfig:
    every: int = key(
        1,
        "Keep the samples of every n-th step in rollouts.jsonl; 0 keeps none.",
        unit="steps",
    )
    samples: int = key(8, "Samples per table in W&B and TensorBoard; 0 shows none.", unit="samples")
    samples_every: int = key(5, "Log such a table every n-th step.", unit="steps")
    trace_every: int = key(10, "Write a timing trace every n-th step; 0 writes none.", unit="steps")
