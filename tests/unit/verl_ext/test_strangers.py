"""Ports of a Ray and a TransferQueue that a run has started, as a stranger on this machine meets them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.verl, pytest.mark.slow]

SCRIPT = """
import json, pickle, sys
from pathlib import Path

from coding_model_project.launch.device import prepare_environment

prepare_environment("cpu", alone=True)
import psutil, ray, torch, zmq
from omegaconf import OmegaConf
from tensordict import TensorDict

from coding_model_project.verl_ext.cluster import worker_setup

mark = Path(sys.argv[1])
ray.init(
    num_cpus=4, include_dashboard=False, log_to_driver=False,
    runtime_env={"env_vars": worker_setup.VARIABLES},
)


class Stranger:
    def __reduce__(self):
        return (open, (str(mark), "w"))


@ray.remote
class Trainer:
    def start(self):
        import transfer_queue as tq

        backend = {"SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 8}}
        self.conf = tq.init(OmegaConf.create({"backend": backend}))
        ports = [list(self.conf.controller.zmq_info.ports.values())]
        units = self.conf.backend.SimpleStorage.zmq_info.values()
        ports += [list(unit.ports.values()) for unit in units]
        return self.conf.controller.zmq_info.ip, sum(ports, [])

    def put(self):
        import transfer_queue as tq

        fields = TensorDict({"x": torch.arange(2)[:, None]}, batch_size=2)
        tq.kv_batch_put(keys=["a", "b"], partition_id="p", fields=fields, tags=[{}, {}])
        return tq.kv_batch_get(keys=["b"], partition_id="p", select_fields=["x"])["x"].values().tolist()


trainer = Trainer.remote()
ip, ports = ray.get(trainer.start.remote())
with zmq.Context() as context:
    for port in ports:
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 1000
        stranger.connect(f"tcp://{ip}:{port}")
        stranger.send_multipart([b"\\xc1\\xfe\\xed", pickle.dumps(Stranger())])
        stranger.poll(1000)
        stranger.close()
got = ray.get(trainer.put.remote())
open_to_others = {
    f"{process.name()} {one.laddr.ip}"
    for process in psutil.Process().children(recursive=True)
    for one in process.net_connections("tcp")
    if one.status == psutil.CONN_LISTEN and not one.laddr.ip.removeprefix("::ffff:").startswith("127.")
}
print(json.dumps({"ip": ip, "ports": len(ports), "got": got, "others": sorted(open_to_others)}))
"""


def test_a_queue_serves_its_run_and_no_stranger(tmp_path):
    mark = tmp_path / "ran"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(mark)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("others") == []
    assert said == {"ip": "127.0.0.1", "ports": 3, "got": [1]}
    assert not mark.exists()
