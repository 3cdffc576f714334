"""A Ray head and a Slurm of one node on this machine, each gone when its context ends."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from coding_model_project.http import free_port
from tests.processes import ran

_ROOT = Path(__file__).parents[2]
_START_S = 180.0
SLURM = ("munged", "slurmctld", "slurmd", "sbatch")

_SLURM_CONF = Path(__file__).with_name("slurm.conf").read_text()


def slurm_conf(
    controller: str,
    address: str,
    nodes: Mapping[str, str],
    private: Path,
    *,
    cpus: int = 2,
    dead_after_s: int = 300,
) -> str:
    """Return a slurm.conf. Jobs in the partition `urgent` preempt those in `all`, the default.

    Args:
        controller: host name of the controller, which has the address after it.
        nodes: addresses of the nodes by host name.
        private: a folder of each machine's own, for daemons' files and munge's socket.
        dead_after_s: seconds without an answer after which a node is down, and its jobs are requeued.
    """
    each = [
        f"NodeName={name} NodeAddr={at} CPUs={cpus} State=UNKNOWN" for name, at in nodes.items()
    ]
    return _SLURM_CONF.format(
        controller=controller,
        address=address,
        private=private,
        controller_port=free_port(),
        node_port=free_port(),
        dead_after_s=dead_after_s,
        nodes="\n".join(each),
    )


def munged(private: Path, key: Path) -> list[str]:
    """Return munge's command, with all its files in a machine's folder but for the key."""
    files = {"key-file": key, "socket": private / "munge.socket", "pid-file": private / "m.pid"}
    files |= {"log-file": private / "m.log", "seed-file": private / "m.seed"}
    return ["munged", "--foreground", "--force", *(f"--{k}={v}" for k, v in files.items())]


@contextmanager
def ray_head(token: str, *, cpus: int = 2, gpus: int = 0) -> Iterator[str]:
    """A head with a dashboard that wants a token; its jobs import this working tree. Gives its URL."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *(f"--port={free_port()}", f"--dashboard-port={port}", f"--num-cpus={cpus}"),
        f"--num-gpus={gpus}",
        *(f"--ray-client-server-port={free_port()}", "--object-store-memory=100000000"),
        *(f"--dashboard-agent-listen-port={free_port()}", '--resources={"driver": 1}'),
        *("--min-worker-port=0", "--max-worker-port=0"),
    ]
    # Short, since Ray makes sockets in it.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        own = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(_ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
        }
        with running([*command, f"--temp-dir={folder}"], **own):
            url = f"http://127.0.0.1:{port}"
            wait(lambda: _answers(f"{url}/api/version"))
            yield url


@contextmanager
def slurm() -> Iterator[str]:
    """Start a controller and a node; yield the path of slurm.conf."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        conf = folder / "slurm.conf"
        host = socket.gethostname().partition(".")[0]
        conf.write_text(slurm_conf(host, "127.0.0.1", {host: "127.0.0.1"}, folder))
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        with ExitStack() as daemons:
            daemons.enter_context(running(munged(folder, key)))
            wait((folder / "munge.socket").exists)
            for daemon in ("slurmctld", "slurmd"):
                daemons.enter_context(running([daemon, "-D", "-f", str(conf)]))
            wait(
                lambda: (
                    "idle" in _output(["sinfo", "--noheader", "--format=%T"], SLURM_CONF=str(conf))
                )
            )
            yield str(conf)


@contextmanager
def running(command: Sequence[str], **environment: str) -> Iterator[None]:
    """A process in a session of its own, which ends with all that is in it."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def has_slurm() -> bool:
    """Return whether Debian's slurmctld, slurmd, slurm-client and munge are installed and may run."""
    return os.getuid() == 0 and all(shutil.which(program) for program in SLURM)


def wait(ready: Callable[[], bool]) -> None:
    """Wait until something that starts is ready."""
    deadline = time.monotonic() + _START_S
    while not ready():
        assert time.monotonic() < deadline, "the cluster did not start in time"
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code in (200, 401)
    except httpx.TransportError:
        return False


def _output(command: Sequence[str], **environment: str) -> str:
    done = ran(command, env={**os.environ, **environment})
    return done.stdout
