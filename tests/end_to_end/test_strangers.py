"""Ports and sockets of a run, as strangers and other runs meet them, and the start of its workers."""

from __future__ import annotations

import pickle
import subprocess
import sys

import psutil
import pytest
from omegaconf import OmegaConf

pytestmark = [pytest.mark.verl, pytest.mark.slow]


class Stranger:
    """A message that writes a file where it is unpickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self):
        return (open, (self.mark, "w"))


class Trainer:
    """Starts a queue, and uses it."""

    def start(self) -> tuple[str, list[int]]:
        """Return the address of its ports, and the ports."""
        import transfer_queue as tq

        backend = {"SimpleStorage": {"num_data_storage_units": 1, "total_storage_size": 8}}
        conf = tq.init(OmegaConf.create({"backend": backend}))
        assert conf is not None
        controller, units = conf.controller.zmq_info, conf.backend.SimpleStorage.zmq_info.values()
        ports = [port for one in (controller, *units) for port in one.ports.values()]
        return controller.ip, ports

    def put(self) -> list[list[int]]:
        """Return what comes back from the queue."""
        import torch
        import transfer_queue as tq
        from tensordict import TensorDict

        fields = TensorDict({"x": torch.arange(2)[:, None]}, batch_size=2)
        tq.kv_batch_put(keys=["a", "b"], partition_id="p", fields=fields, tags=[{}, {}])
        got = tq.kv_batch_get(keys=["b"], partition_id="p", select_fields=["x"])["x"]
        tq.close()
        return [one.tolist() for one in got]


def test_a_queue_serves_its_run_and_no_stranger(tmp_path, in_ray):
    import ray
    import zmq

    mark = tmp_path / "ran"
    trainer = ray.remote(Trainer).remote()
    ip, ports = ray.get(trainer.start.remote())
    assert (ip, len(ports)) == ("127.0.0.1", 3)
    with zmq.Context() as context:
        for port in ports:
            stranger = context.socket(zmq.DEALER)
            stranger.linger = 1000
            stranger.connect(f"tcp://{ip}:{port}")
            stranger.send_multipart([b"\xc1\xfe\xed", pickle.dumps(Stranger(str(mark)))])
            stranger.poll(1000)
            stranger.close()
    open_to_others = {
        f"{process.name()} {one.laddr.ip}"
        for process in psutil.Process().children(recursive=True)
        for one in process.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
        and not one.laddr.ip.removeprefix("::ffff:").startswith("127.")
    }
    assert open_to_others == set()
    assert ray.get(trainer.put.remote()) == [[1]]
    assert not mark.exists()


def test_workers_are_forked_from_a_process_with_all_slow_imports_and_no_ray(tmp_path, in_ray):
    """Ray reads a worker's environment when it is imported."""
    import ray

    from coding_model_project.verl_ext.cluster.forkserver import SLOW_IMPORTS

    names = ("ray", *SLOW_IMPORTS)
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nprint(*(one for one in {names} if one in sys.modules))\n")
    python = ray.get_runtime_context().runtime_env["py_executable"]
    command = ["sh", "-c", f"{python} {script}"]
    imported = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert tuple(imported.split()) == SLOW_IMPORTS


ANOTHER = """
import ray
from coding_model_project.verl_ext.cluster.worker_setup import job_of_cluster

ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print(job_of_cluster())
"""


def test_each_run_on_a_host_names_its_own_socket(in_ray):
    """Two runs, each with its own Ray, do not load each other's weights."""
    import ray

    from coding_model_project.verl_ext.cluster.worker_setup import job_of_cluster

    command = [sys.executable, "-c", ANOTHER]
    another = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert job_of_cluster() == ray.get(ray.remote(job_of_cluster).remote())
    assert "-" in another and another.strip() != job_of_cluster()
