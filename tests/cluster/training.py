"""GRPO on the nodes of a rig: the shared inputs, the command, and what a run writes."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cluster.rig import Done, Node, Rig, Started
from tests.end_to_end.conftest import World, make_world

_START_S = 1500.0  # two minutes with two free cores
_END_S = 300.0
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A run of `recipes.grpo` over all nodes of a rig, by one command that is repeated to resume it."""

    rig: Rig
    run_dir: Path
    command: Sequence[str]

    def start(self, node: Node | None = None) -> Started:
        """Start the command on a node; node 0 by default."""
        return (node or self.rig.nodes[0]).start(self.command)

    def run(self, *overrides: str) -> Done:
        """Run the command to its end."""
        return self.rig.nodes[0].run([*self.command, *overrides], timeout_s=_START_S + _END_S)

    def steps(self) -> list[int]:
        """Return the logged steps in the order of the file."""
        path = self.run_dir / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return [row["step"] for row in rows if "actor/pg_loss" in row["data"]]

    def checkpoints(self) -> list[int]:
        """Return the steps of the complete checkpoints."""
        found = (self.run_dir / "checkpoints").glob("global_step_*/manifest.json")
        return sorted(int(path.parent.name.rpartition("_")[2]) for path in found)

    def wait_for_step(self, started: Started, step: int) -> None:
        """Wait until a step is logged and a checkpoint of it, or of a later step, is complete.

        Raises:
            RuntimeError: the run ended first; the message has the end of its output.
            TimeoutError: the step takes too long.
        """

        def saved_step() -> bool:
            logged, saved = self.steps(), self.checkpoints()
            return bool(logged) and max(logged) >= step and bool(saved) and max(saved) >= step

        wait(saved_step, started, _START_S)


def make_training(rig: Rig, name: str, *overrides: str) -> Training:
    """Return a training on the smallest inputs over all nodes of a rig, with files in `rig.shared`."""
    root = rig.shared / "world"
    if not root.exists():
        root.mkdir()
        make_world(root)
    run_dir = rig.shared / name
    own = [
        f"trainer.nnodes={len(rig.nodes)}",
        f"+ray_kwargs.ray_init.address={rig.address}",
        "trainer.total_training_steps=1000",
        "trainer.total_epochs=1000",
        "trainer.save_freq=1",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",  # each rank has 8 of 16 samples
    ]
    world = World(root).overrides(run_dir)
    command = ["python", "-m", "recipes.grpo", *world, *own, *overrides]
    return Training(rig=rig, run_dir=run_dir, command=command)


def wait(condition: Callable[[], bool], started: Started, timeout_s: float) -> None:
    """Wait until a condition holds while a command runs.

    Raises:
        RuntimeError, TimeoutError: as `Training.wait_for_step`.
    """
    until = time.monotonic() + timeout_s
    while not condition():
        if not started.running:
            raise RuntimeError(f"the run has ended: {started.output[-2000:]}")
        if time.monotonic() > until:
            raise TimeoutError(f"not within {timeout_s:.0f} s: {started.output[-2000:]}")
        time.sleep(_LOOK_EVERY_S)


def error_line(done: Done) -> str:
    """Return the command's error line; "" if there is none or several, or if more output follows it."""
    lines = [line for line in done.output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return errors[0] if len(errors) == 1 and lines[-1] == errors[0] else ""


def rank_of(node: Node) -> psutil.Process:
    """Return the training rank on a node."""
    return node.processes("ray::WorkerDict")[0]
