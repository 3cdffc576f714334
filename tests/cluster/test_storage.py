"""A run on nodes that share a folder, whose own node dies."""

import re
import signal
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
