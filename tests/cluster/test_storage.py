"""What a run keeps, on nodes that share a folder, and the refusal where one of them does not."""

from __future__ import annotations

import textwrap

import pytest

from tests.cluster import rig as rigs

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
from coding_model_project.verl_ext.cluster.nodes import check_nodes, full_disks

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
