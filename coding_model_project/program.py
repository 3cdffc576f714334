"""Names of the command line, for messages that suggest a command, and of the recipes."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = "coding-model"
"""The console script; the same program as `MODULE`."""

MODULE = "python -m coding_model_project"

RECIPES = {
    "baseline": "evaluate a model or a server",
    "sft": "fine-tune on verified demonstrations",
    "dpo": "learn from preference pairs",
    "grpo": "RL on rewards from executed programs",
    "repair": "GRPO in which failing programs are repaired",
    "harbor": "GRPO on Harbor tasks, in a shell",
    "pipeline": "all five phases, compared in one table",
    "demo": "SFT and GRPO from nothing, in minutes on two CPU cores",
}
"""One-line description of each `python -m recipes.NAME`."""


def program() -> str:
    """Return the command line's name as typed; `MODULE` in a process of any other program."""
    return SCRIPT if Path(sys.argv[0]).name == SCRIPT else MODULE
