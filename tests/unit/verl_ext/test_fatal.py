"""A run that must end does so in every state of its folder."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.verl

END = """
import os, sys
from pathlib import Path
from coding_model_project.verl_ext.trainers import ppo_trainer, watch

watch._END_TIMEOUT_S = 1.0
for folder in sys.argv[1:]:
    if not (child := os.fork()):
        trainer = object.__new__(ppo_trainer.SyncTrainer)
        trainer._log_dir = Path(folder)
        trainer._fatal("a worker died")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_it_ends_in_a_good_a_missing_and_a_hung_folder(cpu_platform, tmp_path):
    good, missing, hung = (tmp_path / name for name in ("good", "missing", "hung"))
    good.mkdir()
    hung.mkdir()
    os.mkfifo(hung / "fatal.txt")  # without a reader, so that open never returns
    done = subprocess.run(
        [sys.executable, "-c", END, *map(str, (good, missing, hung))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "3\n3\n3\n", done.stderr
    assert (good / "fatal.txt").read_text() == "a worker died\n"
    assert f"{missing}: No such file or directory; a worker died\n" in done.stderr
