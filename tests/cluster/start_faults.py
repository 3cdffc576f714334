"""Faults that a run detects before it trains; one line names the place and the fix, and ends the run."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.cluster.rig import PORT, Rig
from tests.cluster.training import error_line, make_training, wait

INFRASTRUCTURE, CONFIGURATION = 3, 2
_LATER = "import time\n_now = time.time\ntime.time = lambda: _now() + 3600\n"
"""A `sitecustomize` for a node whose clock is an hour ahead. The kernel has no namespace for this clock,
so the node's Python processes shift it instead."""


def unreachable_head(rig: Rig) -> bool:
    address = f"10.77.0.99:{PORT}"
    return _refuses(rig, INFRASTRUCTURE, address, "no Ray head", address=address)


def wrong_token(rig: Rig) -> bool:
    _head(rig)
    env = rig.environment | {"RAY_AUTH_TOKEN": "0" * 64}
    return _refuses(rig, INFRASTRUCTURE, "token", "RAY_AUTH_TOKEN", env=env)


def too_few_nodes(rig: Rig) -> bool:
    _head(rig)
    return _refuses(rig, INFRASTRUCTURE, "trainer.nnodes=2", "node0 (10.77.0.1)", "ray start")


def other_version(rig: Rig) -> bool:
    folder = _folder(rig, "verl-0.0.1.dist-info/METADATA", "Name: verl\nVersion: 0.0.1\n")
    with _Joined(rig, folder):
        return _refuses(
            rig, CONFIGURATION, "node node1: verl is 0.0.1, and on the driver's node 0.9.1"
        )


def clock_off_by_an_hour(rig: Rig) -> bool:
    """Expect only a warning, since run leases never compare times of two machines."""
    with _Joined(rig, _folder(rig, "sitecustomize.py", _LATER)):
        started = rig.nodes[0].start(make_training(rig, "warned").command)
        wait(lambda: "warning: node node1: its clock is 3," in started.output, started, 300)
        started.signal(signal.SIGKILL)
        warning = next(line for line in started.output.splitlines() if "its clock" in line)
        print(f"  {warning}", flush=True)
        started.wait(60)
        return "ahead of this node's" in warning


def shared_folder_missing(rig: Rig) -> bool:
    _head(rig)
    rig.nodes[1].start_ray()
    rig.nodes[1].share(on=False)
    try:
        return _refuses(rig, CONFIGURATION, "node node1: coding.run_dir=", "all of them share")
    finally:
        rig.nodes[1].share(on=True)
        rig.nodes[1].stop_ray()


AT_THE_START: Mapping[str, Callable[[Rig], bool]] = {
    fault.__name__: fault
    for fault in (
        unreachable_head,
        wrong_token,
        too_few_nodes,
        other_version,
        clock_off_by_an_hour,
        shared_folder_missing,
    )
}
"""The faults in order. Each leaves Ray running at most on node 0."""


class _Joined:
    """A context in which node 1 is in the cluster, with a folder first on its PYTHONPATH."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        _head(rig)
        self._node = rig.nodes[1]
        self._env = {"PYTHONPATH": f"{folder}:{rig.environment['PYTHONPATH']}"}

    def __enter__(self) -> None:
        self._node.start_ray(env=self._env)

    def __exit__(self, *_: object) -> None:
        self._node.stop_ray()


def _head(rig: Rig) -> None:
    if not rig.nodes[0].processes("gcs_server"):
        rig.nodes[0].start_ray()


def _folder(rig: Rig, file: str, text: str) -> Path:
    path = rig.shared / "on_node1" / file.partition("/")[0] / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return rig.shared / "on_node1" / file.partition("/")[0]


def _refuses(
    rig: Rig,
    code: int,
    *words: str,
    address: str | None = None,
    env: Mapping[str, str] | None = None,
) -> bool:
    """Run a training, print its error line, and return whether the line has all the words."""
    training = make_training(rig, "refused")
    command = list(training.command)
    if address is not None:
        command.append(f"ray_kwargs.ray_init.address={address}")
    done = rig.nodes[0].run(command, timeout_s=300, env=env)
    line = error_line(done)
    ok = done.returncode == code and all(word in line for word in words)
    print(f"  exit {done.returncode}: {line or done.output[-2000:]}", flush=True)
    return ok
