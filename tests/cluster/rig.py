"""Several machines on one host: nodes in kernel namespaces on a switch, each with its own Ray.

    with Rig(nodes=2) as rig:                          # needs root on Linux; see `why_not()`
        rig.start_ray()                                # node 0 is the head, at rig.address
        done = rig.nodes[0].run(["python", "-m", "recipes.grpo", ...], timeout_s=600)
        done.returncode, done.output                   # both streams, as one text
        rig.nodes[1].kill()                            # cut the power: no process shuts down
        rig.nodes[1].boot(); rig.nodes[1].start_ray()  # power on: the private folders are empty

A node has its own host name (node0, node1, …), address (10.77.0.1, …), processes, /tmp, /dev/shm and
folder `rig.private`, which has the same path but different content on each node. `rig.shared` is a folder
that all nodes and the host share at the same path. Nodes also see the rest of the host, such as the
checkout and its .venv. Commands get a login's environment instead of the tests', with the checkout on
PYTHONPATH and the rig's token for Ray.

`node.start(command)` returns a `Started` at once, with `signal`, `wait` and `output`.
`node.link(up=False)` pulls the cable. `node.share(on=False)` unmounts the shared folder, whose path is
then an empty folder of the node. `node.host_path(path)` is the host's path of a file of the node.
`Rig(pinned=True)` pins each node and its processes to one core. `rig.outside` is another machine on the
switch, without Ray.

Nothing outlives the rig, even after SIGKILL: each node ends when its pipe from this process closes, and
the kernel removes its processes, mounts and links.

    python -m tests.cluster.rig     start two nodes and Ray, print `ray status`, and end them
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import psutil

from tests.cluster.node_init import SERVER

NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


def unshare(
    host: str, root: Path, *arguments: str, core: int | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a node's first process, and return `unshare` and that process's id on the host.

    Raises:
        RuntimeError: the process did not start; has its error.
    """
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    init = [sys.executable, "-S", str(Path(__file__).with_name("node_init.py")), host, str(root)]
    log = root / "logs" / f"{host}.log"
    with log.open("ab") as errors:
        unshared = subprocess.Popen(
            [
                *(*pinned, "unshare", *NAMESPACES),
                *("--fork", "--kill-child", "--mount-proc", *init, *arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # only the test gets Ctrl-C, and then ends its nodes
        )
    assert unshared.stdout is not None
    if unshared.stdout.readline() != b"ready\n":
        raise RuntimeError(f"{host} did not start: {log.read_text().strip()}")
    return unshared, psutil.Process(unshared.pid).children()[0].pid


def close(unshared: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a node, which ends it."""
    for pipe in (unshared.stdin, unshared.stdout):
        if pipe is not None:
            pipe.close()


def pid_namespace(pid: int) -> str:
    """Return the name of a process's PID namespace; "" if it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def ip(*arguments: str, inside: int = 0) -> None:
    """Run `ip`, in the network namespace of the process `inside` unless it is 0."""
    into = ["nsenter", f"--net=/proc/{inside}/ns/net"] if inside else []
    run_tool([*into, "ip", *arguments])


def run_tool(command: Sequence[str]) -> None:
    """Run a command.

    Raises:
        RuntimeError: it failed; has its error.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


CHECKOUT = Path(__file__).parents[2]
PORT = 6379
_NET = "10.77.0"
_TOOLS = ("ip", "mount", "nsenter", "unshare")
_START_S = 30.0
_RAY_S = 600.0
_OBJECTS_BYTES = 200_000_000


def why_not() -> str | None:
    """Return why this machine cannot run a rig, for `pytest.mark.skipif`; None if it can."""
    if os.geteuid() != 0:
        return "a rig of nodes needs root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"a rig of nodes needs the commands {', '.join(missing)} (iproute2, util-linux)"
    link = "ip link add rig0 type bridge && ip link add rig1 type veth peer name rig2"
    tried = subprocess.run(
        ["unshare", *NAMESPACES, "--fork", "--mount-proc", "sh", "-c", link],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Result of a command on a node."""

    returncode: int
    """Exit code as in `subprocess.Popen.returncode`; negative for a signal."""
    output: str
    """Standard output and error."""


class Started:
    """A command that runs on a node."""

    def __init__(self, entered: subprocess.Popen[bytes], log: Path) -> None:
        self._entered = entered
        self.log = log

    @property
    def process(self) -> psutil.Process:
        """Return the command's process as the host sees it.

        Raises:
            psutil.NoSuchProcess: the process has ended.
        """
        children = psutil.Process(self._entered.pid).children()
        if not children:
            raise psutil.NoSuchProcess(self._entered.pid)
        return children[0]

    @property
    def running(self) -> bool:
        return self._entered.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to the command, but not to its children."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.send_signal(number)

    def wait(self, timeout_s: float) -> Done:
        """Wait for the command to end.

        Raises:
            TimeoutError: the command has not ended, and is killed. The message has the end of its output.
        """
        try:
            code = self._entered.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._entered.wait()
            raise TimeoutError(f"not done after {timeout_s:.0f} s: {self.output[-2000:]}") from None
        return Done(returncode=code, output=self.output)


class Node:
    """A machine of the rig."""

    def __init__(self, rig: Rig, number: int, core: int | None) -> None:
        self._rig = rig
        self._number = number
        self._core = core
        self._unshared: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.host = f"node{number}" if number < 200 else "outside"
        self.address = f"{_NET}.{number + 1}"

    @property
    def up(self) -> bool:
        return self._unshared is not None and self._unshared.poll() is None

    def boot(self) -> None:
        """Start the node without Ray. Nothing is left of a killed one."""
        rig = self._rig
        self._unshared, self._pid = unshare(
            self.host, rig.root, str(rig.shared), *map(str, rig.kept), core=self._core
        )
        self._link_up()

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: Path = CHECKOUT,
    ) -> Done:
        """Run a command on the node, where "python" is this environment's.

        Raises:
            TimeoutError: as `Started.wait`.
        """
        return self.start(command, env=env, cwd=cwd).wait(timeout_s)

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = CHECKOUT,
        log: Path | None = None,
    ) -> Started:
        """Start a command on the node.

        Args:
            env: variables in addition to PATH, HOME, LANG and PYTHONPATH.
            log: file on the host for the output.
        """
        log = log or self._rig.new_log()
        with log.open("wb") as file:
            return Started(
                self._enter(command, {**self._rig.environment, **(env or {})}, cwd, file), log
            )

    def start_ray(
        self,
        *,
        cpus: int = 8,
        gpus: int = 1,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Start Ray: a head on node 0, a node that joins it elsewhere.

        Args:
            cpus: logical CPUs; each of verl's small actors reserves one.
            gpus: logical GPUs: the most training ranks of the node under the CPU profile.
            options: further options of `ray start`.

        Raises:
            RuntimeError: Ray did not start; the message has its output.
        """
        where = (
            ["--head", f"--port={PORT}"]
            if self._number == 0
            else [f"--address={self._rig.address}"]
        )
        dashboard = (
            []
            if self._number or any("dashboard" in o for o in options)
            else ["--include-dashboard=false"]
        )
        command = ["ray", "start", *where, f"--node-ip-address={self.address}", *dashboard]
        command += [f"--num-cpus={cpus}", f"--num-gpus={gpus}", "--disable-usage-stats"]
        command += [f"--object-store-memory={_OBJECTS_BYTES}", *options]
        done = self.run(command, timeout_s=_RAY_S, env=env)
        if done.returncode:
            raise RuntimeError(f"{self.host}: ray start failed: {done.output}")

    def stop_ray(self) -> None:
        """End Ray on the node. It gets SIGTERM first, so that the head learns of it at once."""
        self.run(["ray", "stop"], timeout_s=_RAY_S)

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Return the node's processes with `word` in their command line, oldest first."""
        space, found = pid_namespace(self._pid) if self.up else "", []
        for process in psutil.process_iter() if space else ():
            with contextlib.suppress(psutil.Error):  # it has ended in the meantime
                mine = process.pid != self._pid and pid_namespace(process.pid) == space
                if mine and word in " ".join(process.cmdline()):
                    found.append((process.create_time(), process.pid, process))
        return [process for *_, process in sorted(found)]

    def kill(self) -> None:
        """Cut the power: all processes of the node and its link end at once."""
        if self._unshared is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._unshared.wait()
        close(self._unshared)

    def link(self, *, up: bool) -> None:
        """Plug in or pull the network cable."""
        state = "up" if up else "down"
        ip("link", "set", self.host, state, inside=self._rig.switch_pid)

    def share(self, *, on: bool) -> None:
        """Mount or unmount the shared folder on the node; open files stay open."""
        shared = str(self._rig.shared)
        command = ["mount", "--bind", str(self._rig.root / SERVER), shared]
        into = ["nsenter", f"--target={self._pid}", "--mount", "--pid"]
        run_tool([*into, *(command if on else ["umount", "-l", shared])])

    def host_path(self, path: Path) -> Path:
        """Return the host's path of a file of the node."""
        return Path(f"/proc/{self._pid}/root{path}")

    def _enter(
        self, command: Sequence[str], env: Mapping[str, str], cwd: Path, output: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        pinned = [] if self._core is None else ["taskset", "--cpu-list", str(self._core)]
        inside = ["nsenter", f"--target={self._pid}", *NAMESPACES, f"--wd={cwd}", *pinned, *command]
        return subprocess.Popen(
            inside, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def _link_up(self) -> None:
        switch, host = self._rig.switch_pid, self.host
        link = f"link add eth0 netns {self._pid} type veth peer name {host} netns {switch}"
        ip(*link.split())
        ip("link", "set", host, "master", "switch", "up", inside=switch)
        ip("address", "add", f"{self.address}/24", "dev", "eth0", inside=self._pid)
        ip("link", "set", "eth0", "up", inside=self._pid)


class Rig:
    """Nodes on a switch; a context manager."""

    def __init__(self, nodes: int = 2, *, pinned: bool = False, keep: Sequence[Path] = ()) -> None:
        """Create the rig's folder; entering the context starts the nodes.

        Args:
            pinned: pin each node to one core, node N to core N.
            keep: folders of the host's /tmp that nodes see in addition to the checkout, such as data.
        """
        self.root = Path(tempfile.mkdtemp(prefix="rig-", dir="/tmp"))
        self.shared = self.root / "shared"
        self.private = self.root / "private"
        self._logs = self.root / "logs"
        self.address = f"{_NET}.1:{PORT}"
        cores = sorted(os.sched_getaffinity(0))
        self.nodes = [
            Node(self, n, cores[n % len(cores)] if pinned else None) for n in range(nodes)
        ]
        self.outside = Node(self, 200, None)
        folders = [CHECKOUT, Path(sys.prefix), Path(sys.prefix).resolve(), *keep]
        self.kept = [path for path in folders if path.is_relative_to("/tmp")]
        self.environment = {
            "PATH": f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.private),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(CHECKOUT),
            # Ray 2.60 requires a token if one was ever created on this machine; the rig has its own.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_worker_register_timeout_seconds": "600",  # two nodes on two cores, which may be busy
        }
        self._switch: subprocess.Popen[bytes] | None = None
        self.switch_pid = 0

    def __enter__(self) -> Self:
        for folder in (self.shared, self._logs):
            folder.mkdir()
        self._switch, self.switch_pid = unshare("switch", self.root, "-", core=None)
        ip("link", "add", "switch", "type", "bridge", inside=self.switch_pid)
        ip("link", "set", "switch", "up", inside=self.switch_pid)
        for node in (*self.nodes, self.outside):
            node.boot()
        return self

    def __exit__(self, *_: object) -> None:
        for node in (*self.nodes, self.outside):
            node.kill()
        if self._switch is not None:
            close(self._switch)
            self._switch.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def start_ray(
        self, *, cpus: int = 8, gpus: int = 1, env: Mapping[str, str] | None = None
    ) -> None:
        """Start Ray on all nodes that are up; see `Node.start_ray`."""
        for node in self.nodes:
            if node.up:
                node.start_ray(cpus=cpus, gpus=gpus, env=env)

    def new_log(self) -> Path:
        """Return a path for a command's output."""
        return self._logs / f"{time.time_ns()}.log"


def _main() -> None:
    if reason := why_not():
        raise SystemExit(reason)
    with Rig() as rig:
        rig.start_ray()
        print(rig.nodes[1].run(["ray", "status"], timeout_s=60).output)


if __name__ == "__main__":
    _main()
