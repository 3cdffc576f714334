"""A job on two nodes of a real Slurm: one Ray, a requeue at the time limit, a node that dies.

The recipe is a stand-in that joins Ray and trains nothing. The nodes are namespaces of this machine.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import rig as rigs
from tests.cluster.slurm import SlurmRig, slurm_rig, why_not
from tests.unit.launch.jobs.conftest import git

_REASON = rigs.why_not() or why_not()
pytestmark = [
    pytest.mark.contract,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(_REASON), reason=str(_REASON)),
]
_PATIENCE_S = 500.0
_JOINS_RAY = """
import ray
from recipes import stand_in

if __name__ == "__main__":
    ray.init(address="auto", log_to_driver=False)
    hosts = [node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]]
    print("joined", *sorted(hosts), flush=True)
    stand_in.main()
"""


class TwoNodes:
    """A job `two` on both nodes of a rig."""

    def __init__(self, slurm: SlurmRig) -> None:
        self.slurm = slurm
        self._shared = slurm.rig.shared
        recipes = self._shared / "repo" / "recipes"
        recipes.mkdir(parents=True)
        (recipes / "__init__.py").touch()
        (recipes / "grpo.py").write_text(_JOINS_RAY)
        shutil.copy(Path(__file__).parents[1] / "contract" / "stand_in.py", recipes)
        git(recipes.parent, "init", "--quiet")
        git(recipes.parent, "add", "--all")
        git(recipes.parent, "commit", "--quiet", "--message", "first")

    def jobs(self, *words: str) -> str:
        """Run `jobs` on the login node; return what it prints."""
        done = self.slurm.run(["python", "-m", "coding_model_project", "jobs", *words])
        assert done.returncode == 0, done.output
        return done.output

    @property
    def log(self) -> str:
        return (self._shared / "outputs" / "jobs" / "two" / "log.txt").read_text()

    @property
    def last_step(self) -> int:
        steps = [line for line in self.log.splitlines() if line.startswith("step ")]
        return int(steps[-1].split()[1]) if steps else 0

    @property
    def saved(self) -> list[int]:
        """Return the steps of the run's checkpoints."""
        found = (self._shared / "run" / "checkpoints").glob("global_step_*")
        return sorted(int(one.name.rpartition("_")[2]) for one in found)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.log[-3000:]
            time.sleep(0.5)


def test_two_nodes_are_one_ray_and_the_job_survives_its_time_limit_and_a_dead_node():
    with slurm_rig(nodes=2) as slurm:
        two = TwoNodes(slurm)
        run = f"coding.run_dir={slurm.rig.shared}/run"
        where = ("--backend", "slurm", "--name", "two", "--repo", "repo")
        on_two = ("--sbatch=--nodes=2", "--sbatch=--exclusive")
        two.jobs("submit", *where, *on_two, "grpo", "hardware=gpu_multi", run)
        two.until(lambda: two.last_step >= 3)
        assert "joined node0 node1\n" in two.log

        # As at the time limit, whose signal the script alone gets.
        number = slurm.run(["squeue", "--noheader", "--format=%i"]).output.strip()
        slurm.run(["scancel", "--batch", "--signal=TERM", number])
        two.until(lambda: len(two.saved) == 1 and two.log.count("joined node0 node1\n") == 2)
        (first,) = two.saved
        two.until(lambda: two.last_step > first)
        assert two.log.count("step 1\n") == two.log.count(f"step {first}\n") == 1

        victim = slurm.rig.nodes[1]
        victim.kill()
        two.until(lambda: "PENDING" in slurm.run(["squeue", "--format=%T"]).output)
        victim.boot()
        slurm.start_node(victim)
        two.until(lambda: two.log.count("joined node0 node1\n") == 3)
        two.until(lambda: two.log.count(f"step {first + 1}\n") == 2)  # from the last checkpoint
        assert "two: interrupted" in two.jobs("stop", "two")
        assert two.saved[-1] > first
