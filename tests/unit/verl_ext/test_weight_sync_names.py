"""Two runs on one host, each with its own Ray, do not load each other's weights."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import ray
from coding_model_project.verl_ext.cluster.sockets import job_of_cluster

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
print(job_of_cluster(), ray.get(ray.remote(job_of_cluster).remote()), flush=True)
input()  # keep the cluster alive until the other one has started
"""


def test_each_cluster_names_its_own_socket():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        said = [next(line for line in run.stdout if "-" in line).split() for run in runs]
    finally:
        for run in runs:
            run.communicate("\n")
    (one, ones_worker), (other, others_worker) = said
    assert (one, other) == (ones_worker, others_worker)
    assert one != other
