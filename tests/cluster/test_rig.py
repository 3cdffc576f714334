"""The rig's nodes share one folder and nothing else, and nothing outlives the rig."""

from __future__ import annotations

import signal
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

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 9), timeout=0.5)"


def reaches(node: rigs.Node, other: rigs.Node) -> bool:
    """Return whether the other machine answers, which a refused connection shows."""
    done = node.run(["python", "-c", _CONNECT, other.address], timeout_s=10)
    return "ConnectionRefusedError" in done.output


def test_nodes_are_machines_of_their_own_that_share_one_folder():
    with rigs.Rig() as rig:
        one, other = rig.nodes
        assert one.run(["hostname"], timeout_s=10).output == "node0\n"
        (rig.shared / "file").write_text("all")
        one.run(["touch", str(rig.private / "mine")], timeout_s=10)
        assert one.host_path(rig.private / "mine").exists()
        assert not other.host_path(rig.private / "mine").exists()
        read = ["cat", str(rig.shared / "file")]
        assert other.run(read, timeout_s=10).output == "all"
        other.share(on=False)
        assert other.run(read, timeout_s=10).returncode == 1
        assert one.run(read, timeout_s=10).output == "all"
        other.share(on=True)
        assert other.run(read, timeout_s=10).output == "all"
        assert reaches(rig.outside, other)
        other.link(up=False)
        assert not reaches(one, other)
        other.link(up=True)
        assert reaches(one, other)
        root = rig.root
    assert not root.exists()


def test_a_killed_node_loses_its_processes_and_boots_empty():
    with rigs.Rig(pinned=True) as rig:
        node = rig.nodes[1]
        asleep = node.start(["sleep", "60"])
        wait_for(lambda: bool(node.processes("sleep")))
        node.run(["touch", str(rig.private / "mine")], timeout_s=10)
        node.kill()
        assert asleep.wait(10).returncode == -signal.SIGKILL
        node.boot()
        assert not node.host_path(rig.private / "mine").exists()
        assert node.run(["nproc"], timeout_s=10).output == "1\n"
        again = node.start(["sleep", "60"])
        wait_for(lambda: bool(node.processes("sleep")))
        again.signal(signal.SIGTERM)
        assert again.wait(10).returncode == -signal.SIGTERM


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
