"""A run that must end does so in every state of its folder."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.text_cases import sources

SOURCES = sources(__file__)

pytestmark = pytest.mark.slow

END = SOURCES["end"]


def test_it_ends_in_a_good_a_missing_and_a_hung_folder(tmp_path):
    good, missing, hung = (tmp_path / name for name in ("good", "missing", "hung"))
    good.mkdir()
    hung.mkdir()
    os.mkfifo(hung / "fatal.txt")  # without a reader, so that open never returns
    ends = [
        subprocess.Popen([sys.executable, "-c", END, folder], stderr=subprocess.PIPE, text=True)
        for folder in (good, missing, hung)
    ]
    said = [process.communicate(timeout=60)[1] for process in ends]
    assert [process.returncode for process in ends] == [3, 3, 3], said
    assert (good / "fatal.txt").read_text() == "a worker died\n"
    assert said[1] == f"{missing}: No such file or directory; a worker died\n"
