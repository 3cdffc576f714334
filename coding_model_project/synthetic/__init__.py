"""The embedded default data: generated tasks, and a tiny model trained from scratch.

prepare       the task sets and starting models as files, made once
tinycode      small Python tasks composed from tinycode_families, whose parts tinycode_parts.csv has, with
              known mistakes; tinygolf: the same as Harbor tasks; tinymix: with sums beside them
tinyshell     Harbor tasks of one or two shell commands, drawn by tinyshell_tasks
tiny_model    a tiny model, trained from scratch on a corpus
"""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.config_key import key


@dataclass
class TinyCodeConfig:
    """`coding.tinycode`: settings of the embedded task set."""

    seed: int = key(0, "Seed of the task generator: fixed, so that every run has the same tasks.")
    sft_demonstrations: int = key(
        200, "Verified demonstrations for SFT, all of the easy levels 1-2.", unit="demonstrations"
    )
