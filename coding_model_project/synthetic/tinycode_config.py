"""`coding.tinycode`: settings of the embedded task set."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import key


@dataclass
class TinyCodeConfig:
    seed: int = key(0, "Seed of the task generator: fixed, so that every run has the same tasks.")
    sft_demonstrations: int = key(
        200, "Verified demonstrations for SFT, all of the easy levels 1-2.", unit="demonstrations"
    )
