"""Runs on nodes that share a folder, and the error if one node does not."""

from __future__ import annotations

import re
import signal
import textwrap
import time

import pytest

from coding_model_project.errors import INTERRUPTED
from tests.cluster import rig as rigs
from tests.cluster.training import error_line
from tests.end_to_end.conftest import World, make_world

pytestmark = [
    pytest.mark.verl,
    pytest.mark.sandbox,
    pytest.mark.skipif(bool(reason := rigs.why_not()), reason=str(reason)),
]

CHECK = """
import sys
from pathlib import Path
import ray
from omegaconf import OmegaConf
from coding_model_project.errors import CodingModelError
from coding_model_project.verl_ext.cluster.node_checks import check_nodes, full_disks

run_dir, problems, model = sys.argv[1:]
config = {"coding": {"run_dir": run_dir, "problems": [problems]}}
config |= {"actor_rollout_ref": {"model": {"path": model}}}
Path(run_dir).mkdir(parents=True, exist_ok=True)
ray.init(address="auto", log_to_driver=False)
try:
    check_nodes(OmegaConf.create(config))
    print("fine" + full_disks())
except CodingModelError as error:
    print(f"error: {error}")
"""


def test_a_node_that_does_not_share_the_folder_is_named_before_anything_is_trained():
    with rigs.Rig() as rig:
        rig.start_ray(cpus=1, gpus=0)
        driver, other = rig.nodes
        run_dir, problems, model = (rig.shared / name for name in ("run", "p.jsonl", "model"))
        problems.write_text("{}\n")
        model.mkdir()
        (model / "config.json").write_text("{}")

        def check(*paths):
            command = ["python", "-c", textwrap.dedent(CHECK), *map(str, paths)]
            return driver.run(command, timeout_s=120).output.splitlines()[-1]

        assert check(run_dir, problems, model) == "fine"
        mine = rig.private / "p.jsonl"
        driver.host_path(mine).write_text("{}\n")
        assert check(run_dir, mine, model).startswith(
            f"error: node node1: coding.problems={mine} is absent, and on the driver's node 3 bytes"
        )
        lacks = (
            f"node node1: coding.run_dir={rig.private}/run is not the folder that the driver writes"
        )
        assert check(rig.private / "run", problems, model).startswith(f"error: {lacks}")
        other.share(on=False)
        said = check(run_dir, problems, model)
        assert said.startswith(
            f"error: node node1: coding.run_dir={run_dir} is not the folder that the driver writes into; "
            f"node node1: coding.problems={problems} is absent"
        )
        assert said.endswith(
            "the same files and packages on each; mount it there, or set the key to a folder that is "
            "shared"
        )


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_training_goes_on_from_another_node_once_its_own_is_dead_and_not_before():
    with rigs.Rig() as rig:
        world, run_dir = rig.shared / "world", rig.shared / "run"
        world.mkdir()
        make_world(world)
        # SFT, since its steps are short; the nodes need only share the run's folder.
        command = ["python", "-m", "recipes.sft", *World(world).overrides(run_dir, "sft")]
        command += ["trainer.total_training_steps=100000", "trainer.total_epochs=100000"]
        command += ["trainer.save_freq=1", "trainer.max_ckpt_to_keep=3"]
        first, other = rig.nodes

        def steps():
            found = (run_dir / "checkpoints").glob("global_step_*/manifest.json")
            return [int(path.parent.name.removeprefix("global_step_")) for path in found]

        def wait_for_step(step, started):
            until = time.monotonic() + 500
            while max(steps(), default=0) < step:
                assert started.running and time.monotonic() < until, started.output
                time.sleep(0.5)

        wait_for_step(1, first.start(command))
        refused = other.run([*command, "coding.force=true"], timeout_s=300)
        assert refused.returncode == 2
        assert re.fullmatch(
            rf"error: coding.run_dir={run_dir}: the run is running \(process \d+ on node0, its last "
            r"heartbeat \d+ s ago\); end it there, or choose another folder",
            error_line(refused),
        )
        first.kill()
        before = max(steps())
        resumed = other.start(command)
        wait_for_step(before + 1, resumed)
        resumed.signal(signal.SIGTERM)
        done = resumed.wait(200)
        assert done.returncode == INTERRUPTED, done.output
        assert f"{run_dir}: attempt 1 on node0 is dead: taking over" in done.output
