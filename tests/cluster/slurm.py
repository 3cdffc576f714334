"""Slurm on a rig: a slurmd on each node, and the controller on the machine where jobs are submitted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.cluster.rig import Done, Node, Rig
from tests.contract.clusters import has_slurm, munged, slurm_conf, wait

_DEAD_AFTER_S = 10
_PATIENCE_S = 600
_CPUS = 8
"""Of each node in Slurm's books: Ray's small actors reserve one each."""


def why_not() -> str | None:
    """Return why this machine cannot run it, for `pytest.mark.skipif`; None if it can."""
    return None if has_slurm() else "no Slurm of Debian's, or not root"


class SlurmRig:
    """A Slurm on a rig that is up."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._key = rig.shared / "munge.key"
        self._conf = rig.shared / "slurm.conf"

    def start(self) -> None:
        """Start it on all machines, and wait until its nodes are idle."""
        rig, login = self.rig, self.rig.outside
        self._key.write_bytes(os.urandom(1024))
        self._key.chmod(0o400)
        nodes = {node.host: node.address for node in rig.nodes}
        conf = slurm_conf(
            *(login.host, login.address, nodes, rig.private),
            cpus=_CPUS,
            dead_after_s=_DEAD_AFTER_S,
        )
        self._conf.write_text(conf)
        self._start(login, "slurmctld")
        for node in rig.nodes:
            self.start_node(node)

    def start_node(self, node: Node) -> None:
        """Start slurmd on a node that has booted, and wait until it is idle."""
        self._start(node, "slurmd")
        command = ["sinfo", "--noheader", f"--nodes={node.host}", "--format=%T", "--partition=all"]
        wait(lambda: self.run(command).output == "idle\n")

    def run(self, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> Done:
        """Run a command where users log in, in the folder that all machines share."""
        environment = {"SLURM_CONF": str(self._conf), **(env or {})}
        return self.rig.outside.run(
            command, timeout_s=_PATIENCE_S, env=environment, cwd=self.rig.shared
        )

    def _start(self, node: Node, daemon: str) -> None:
        private = self.rig.private
        for folder in ("state", "spool"):
            node.run(["mkdir", "-p", str(private / folder)], timeout_s=10)
        node.start(munged(private, self._key))
        wait(lambda: node.host_path(private / "munge.socket").exists())
        node.start([daemon, "-D", "-f", str(self._conf)])


@contextmanager
def slurm_rig(nodes: int = 2) -> Iterator[SlurmRig]:
    """Start a rig with Slurm; nothing of it outlives the context."""
    with Rig(nodes=nodes) as rig:
        slurm = SlurmRig(rig)
        slurm.start()
        yield slurm
