"""vLLM holds the trainer's weights after a sync, in every architecture."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.end_to_end.synced_models import KINDS, shapes

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]

TYPICAL = ("llama", "gemma3_text")


@pytest.mark.parametrize(
    "kinds", [TYPICAL, pytest.param([*KINDS], marks=pytest.mark.soak)], ids=["typical", "all"]
)
def test_log_probabilities_after_a_sync_are_those_of_transformers(tmp_path, kinds):
    command = [sys.executable, "-m", "tests.end_to_end.synced_models", str(tmp_path), *kinds]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(one["model"], one["tied"]) for one in found] == list(shapes(kinds))
    for one in found:
        assert one["after"] < 1e-3 < 1 < one["before"], one
