"""Nothing outlives a rig."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster import rig as rigs
from tests.processes import command_line
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(bool(reason := rigs.why_not()), reason=str(reason)),
]


def test_a_killed_rig_leaves_nothing(tmp_path: Path):
    killed = (
        "import os; from tests.cluster.rig import Rig\n"
        "with Rig() as rig:\n"
        "    rig.nodes[0].start(['sleep', '61'])\n"
        "    print(rig.root, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", killed],
        capture_output=True,
        text=True,
        check=False,
        cwd=rigs.CHECKOUT,
    )
    root = done.stdout.strip()
    assert root
    wait_for(lambda: not Path(root).exists())
    wait_for(lambda: not _with_argument(root))


def _with_argument(text: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if text in command_line(process)]
