"""Faults that end a run while it trains, with one line and exit 3; the same command then resumes it."""

import signal
import time
from collections.abc import Callable, Mapping

from coding_model_project.errors import INTERRUPTED
from tests.cluster.rig import Done, Node, Rig, Started
from tests.cluster.training import Training, error_line, make_training, rank_of

_END_S = 300.0


class Faults:
    """The faults of one run, in order; each first resumes the run that the previous fault ended."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._training: Training = make_training(rig, "trained")
        self._running: Started | None = None
        self._ray_is_fresh = False

    def trains_on_both_nodes(self) -> bool:
        """Check without a fault: a rank and a judge on each node, and checkpoints of both ranks."""
        started = self._go_on()
        on_each = all(
            len(node.processes(word)) == 1
            for node in self._rig.nodes
            for word in ("ray::WorkerDict", "ray::RewardLoopWorker")
        )
        runner = [node.host for node in self._rig.nodes if node.processes("TaskRunner")]
        newest = max(self._training.checkpoints())
        actor = self._training.run_dir / f"checkpoints/global_step_{newest}/actor"
        shards = sorted(path.name for path in actor.glob("model_world_size_2_rank_*.pt"))
        _say(
            f"a rank and a judge on each node: {on_each}; the trainer on {runner}; shards: {shards}"
        )
        self._running = started
        return on_each and runner == ["node0"] and len(shards) == 2

    def rank_killed(self) -> bool:
        started, node = self._go_on(), self._rig.nodes[1]
        rank_of(node).kill()
        return self._ends(started, f"WorkerDict on {node.address} died", "same command resumes")

    def node_killed(self) -> bool:
        started, node = self._go_on(), self._rig.nodes[1]
        node.kill()
        ok = self._ends(started, "node1 (10.77.0.2)", "ray start")
        node.boot()
        node.start_ray()
        return ok

    def link_down(self) -> bool:
        started, node = self._go_on(), self._rig.nodes[1]
        node.link(up=False)
        ok = self._ends(started, "node1 (10.77.0.2)", "ray start")
        ok = self._empty(node) and ok
        node.link(up=True)
        node.stop_ray()
        node.start_ray()
        return ok

    def drivers_node_killed(self) -> bool:
        """Kill the driver's node: no line appears, the other node must end the run, a lease expires."""
        started = self._go_on()
        first, other = self._rig.nodes
        first.kill()
        started.wait(_END_S)
        ok = self._empty(other)
        other.stop_ray()
        first.boot()
        self._rig.start_ray()
        return ok

    def goes_on_and_stops(self) -> bool:
        """Resume the run a last time, and end it with SIGTERM, after which it saves a checkpoint."""
        started = self._go_on()
        started.signal(signal.SIGTERM)
        done = started.wait(_END_S)
        steps = self._training.steps()
        _say(
            f"exit {done.returncode} after steps {steps}; checkpoints {self._training.checkpoints()}"
        )
        return done.returncode == INTERRUPTED and max(steps) in self._training.checkpoints()

    @property
    def in_order(self) -> Mapping[str, Callable[[], bool]]:
        faults = (
            self.trains_on_both_nodes,
            self.rank_killed,
            self.node_killed,
            self.link_down,
            self.drivers_node_killed,
            self.goes_on_and_stops,
        )
        return {fault.__name__: fault for fault in faults}

    def _go_on(self) -> Started:
        """Run the command, unless it runs already, and wait for a new step and its checkpoint.

        Raises:
            RuntimeError: the run does not resume from the last checkpoint.
        """
        if not self._ray_is_fresh:  # the faults of the start leave a Ray on node 0
            for node in self._rig.nodes:
                node.stop_ray()
            self._rig.start_ray()
            self._ray_is_fresh = True
        before = max(self._training.checkpoints(), default=0)
        logged = len(self._training.steps())
        began = time.monotonic()
        started = self._running or self._training.start()
        self._running = None
        self._training.wait_for_step(started, before + 1)
        first = self._training.steps()[logged:][:1]
        _say(f"step {first} after {time.monotonic() - began:.0f} s, from checkpoint {before}")
        if first and first[0] > before + 1:
            raise RuntimeError(f"the run resumed at step {first[0]} from checkpoint {before}")
        return started

    def _ends(self, started: Started, *words: str) -> bool:
        """Wait for the end, and return whether it has exit code 3 and one line with these words."""
        began = time.monotonic()
        done: Done = started.wait(_END_S)
        line = error_line(done)
        after_s = time.monotonic() - began
        _say(f"exit {done.returncode} after {after_s:.0f} s: {line or done.output[-3000:]}")
        return done.returncode == 3 and bool(line) and all(word in line for word in words)

    def _empty(self, node: Node) -> bool:
        """Wait until no process of the run is left on a node, even if the node is cut off."""
        until = time.monotonic() + _END_S
        while (
            left := node.processes("ray::WorkerDict") + node.processes("VLLM::")
        ) and time.monotonic() < until:
            time.sleep(1)
        commands = [" ".join(process.cmdline())[:80] for process in left if process.is_running()]
        _say(f"processes of the run left on {node.host}: {commands}")
        return not left


def _say(text: str) -> None:
    print(f"  {text}", flush=True)
