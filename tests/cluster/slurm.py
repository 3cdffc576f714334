"""GRPO under a real Slurm of two nodes, one of which loses its power: `python -m tests.cluster.slurm`.

The nodes are namespaces of this machine (`tests.cluster.rig`), each with Debian's munged and slurmd. One
`jobs submit --sbatch=--nodes=2` trains on both; node 1 dies and comes back; the requeued job goes on from
its last checkpoint, and `jobs stop` ends it with one more. Prints what was typed. Exit codes: 0; 1 if
something did not happen in time; 2 if this machine cannot run such nodes.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.rig import CHECKOUT, Node, Rig, why_not
from tests.cluster.training import Training, make_training
from tests.contract import clusters

_SOON_S, _TRAINS_S, _DEAD_AFTER_S = 400.0, 1500.0, 60
_BOOTS_S = 60.0
"""Seconds of a machine's start, at least. Slurm 22.05 ends the earlier attempt on a node that comes back,
and a requeued job has the same id: within seconds, the new attempt dies too."""

_NAME = "golf"


class Session:
    """A Slurm on the nodes of a rig, and commands on its first node."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._key, self._conf = rig.shared / "munge.key", rig.shared / "slurm.conf"
        self._key.write_bytes(os.urandom(1024))
        self._key.chmod(0o400)
        addresses = {node.host: node.address for node in rig.nodes}
        self._conf.write_text(
            clusters.slurm_conf(
                "node0",
                addresses["node0"],
                addresses,
                rig.private,
                cpus=8,
                dead_after_s=_DEAD_AFTER_S,
            )
        )
        self._environment = {
            "SLURM_CONF": str(self._conf),
            "RAY_OVERRIDE_RESOURCES": '{"GPU": 1}',  # logical, as `ray start --num-gpus`
            "RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT": "600",  # two cores for all
            "RAY_SYMMETRIC_RUN_NODE_START_TIMEOUT": "600",
        }
        for node in rig.nodes:
            self.boot(node)

    def boot(self, node: Node) -> None:
        """Start a node's daemons."""
        private: Path = self.rig.private
        node.run(["mkdir", "-p", f"{private}/state", f"{private}/spool"], timeout_s=20)
        node.run(["chmod", "0711", str(private)], timeout_s=20)
        node.start(clusters.munged(private, self._key))
        time.sleep(3)  # munged makes its socket
        controller = ["slurmctld"] if node is self.rig.nodes[0] else []
        for daemon in [*controller, "slurmd"]:
            node.start([daemon, "-D", "-f", str(self._conf)], env=self._environment)
            time.sleep(2)

    def output(self, *words: str, timeout_s: float = 300.0) -> str:
        """Run a command of Slurm, or `jobs`, and return its output."""
        command = list(words)
        if command[0] == "jobs":
            command = ["python", "-m", "coding_model_project", *command]
        done = self.rig.nodes[0].run(
            command, timeout_s=timeout_s, env=self._environment, cwd=self.rig.shared
        )
        return done.output

    def typed(self, *words: str, timeout_s: float = 300.0) -> None:
        """Run a command, and show it with its output."""
        print("$", *words, flush=True)
        print(self.output(*words, timeout_s=timeout_s).rstrip(), flush=True)

    def until(self, seen: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait for something.

        Raises:
            TimeoutError: it did not come; the job's log is printed.
        """
        began = time.monotonic()
        while not seen():
            if time.monotonic() - began > within_s:
                print(self.output("jobs", "logs", _NAME)[-6000:])
                raise TimeoutError(f"not within {within_s:.0f} s: {what}")
            time.sleep(3)
        print(f"{time.monotonic() - began:.0f} s: {what}", flush=True)

    def runs(self) -> bool:
        """Return whether the job runs."""
        return " R " in self.output("squeue", "--noheader")


def saved(training: Training, step: int) -> bool:
    """Return whether a step is logged, and it or a later one saved."""
    return min(max(training.steps(), default=0), max(training.checkpoints(), default=0)) >= step


def session(rig: Rig) -> None:
    """Submit, lose a node, get it back, stop."""
    slurm = Session(rig)
    slurm.until(
        lambda: slurm.output("sinfo", "--noheader", "-N", "-o", "%T").split() == ["idle"] * 4,
        _SOON_S,
        "both nodes are idle, in both partitions",
    )
    training = make_training(rig, "run")
    ours = ("trainer.nnodes=", "+ray_kwargs.ray_init.address=")  # jobs sets them
    recipe = [word for word in training.command[3:] if not word.startswith(ours)]
    nodes = ["--backend", "slurm", "--sbatch=--nodes=2", "--sbatch=--exclusive"]
    slurm.typed("jobs", "submit", *nodes, "--name", _NAME, "--repo", str(CHECKOUT), "grpo", *recipe)
    slurm.until(lambda: saved(training, 2), _TRAINS_S, "two steps on two nodes, with checkpoints")
    slurm.typed("squeue")

    rig.nodes[1].kill()
    slurm.until(lambda: not slurm.runs(), _SOON_S, "the attempt ended after node 1's death")
    slurm.typed("squeue")
    slurm.typed("sinfo", "-N")

    last = max(training.checkpoints())
    time.sleep(_BOOTS_S)
    rig.nodes[1].boot()
    slurm.boot(rig.nodes[1])
    slurm.until(slurm.runs, _SOON_S, "the requeued job runs")
    slurm.until(
        lambda: saved(training, last + 1), _TRAINS_S, f"a step after the checkpoint of step {last}"
    )
    slurm.typed("jobs", "stop", _NAME, timeout_s=1000.0)
    slurm.typed("jobs", "list")
    steps, checkpoints = training.steps(), training.checkpoints()
    print(f"steps {steps}, checkpoints {checkpoints}")
    if steps != sorted(set(steps)) or max(checkpoints) != max(steps):
        raise TimeoutError("a step was trained twice, or the last one was not saved")


def main() -> int:
    missing = why_not() or (
        None if clusters.has_slurm() else "no Slurm: apt-get install slurm-wlm munge"
    )
    if missing:
        print(f"error: {missing}", file=sys.stderr)
        return 2
    with Rig(nodes=2) as rig:
        try:
            session(rig)
        except TimeoutError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
