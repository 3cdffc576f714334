"""vLLM holds the trainer's weights after a sync, in every architecture."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.end_to_end.synced_models import CACHE_BYTES, shapes

pytestmark = [pytest.mark.verl, pytest.mark.timeout(600)]


def test_log_probabilities_after_a_sync_are_those_of_transformers(tmp_path):
    command = [sys.executable, "-m", "tests.end_to_end.synced_models", str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(one["model"], one["tied"]) for one in found] == list(shapes())
    for one in found:
        assert one["after"] < 1e-3 < 1 < one["before"], one
        assert one["cache_bytes"] == CACHE_BYTES  # a variable of the environment would replace it
