"""The fork server forks the requested process; without a server the client is a plain Python."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from coding_model_project.verl_ext.cluster import forkserver
from tests.text_cases import sources
from tests.waiting import wait_for

SOURCES = sources(__file__)

pytestmark = pytest.mark.slow

SCRIPT = SOURCES["script"]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def started(python: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process as Ray starts a worker."""
    return subprocess.Popen(
        ["bash", "-c", f"exec {python} {shlex.join(map(str, arguments))}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"MINE": "a 'b'\n"},
        cwd="/",
        preexec_fn=lambda: os.nice(5),
    )


def said(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


def test_it_is_the_process_that_was_asked_for(script):
    with forkserver.running(["xmlrpc.client"]) as python:
        processes = [started(python, script, 0, "an argument") for _ in range(3)]
        seen = [said(process) for process in processes]
        assert [process.communicate(timeout=60)[1] for process in processes] == ["told\n"] * 3
    about = {
        "main": "__main__",
        "arguments": ["0", "an argument"],
        "folder": "/",
        "mine": "a 'b'\n",
        "path": str(script.parent),
        "nice": min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5),
        "imported": True,
    }
    assert [{name: one[name] for name in about} for one in seen] == [about] * 3
    assert len({one["pid"] for one in seen}) == 3


def test_a_worker_of_rays_has_the_name_that_ray_gives_it(tmp_path):
    """`ps` and `top` show it, and soak tests strike by it."""
    worker = tmp_path / "default_worker.py"
    named = "import json, ray; ray._raylet.setproctitle('ray::Mine')\n"
    worker.write_text(
        f"{named}print(json.dumps(open('/proc/self/cmdline').read().strip(chr(0) + ' ')))"
    )
    with forkserver.running(()) as python:
        assert said(started(python, str(worker))) == "ray::Mine"


def test_the_client_ends_with_it(script):
    with forkserver.running([]) as python:
        process = started(python, script, 100)
        os.kill(int(str(said(process)["pid"])), signal.SIGKILL)
        process.communicate(timeout=60)


def test_without_a_server_it_is_a_plain_python(script):
    with forkserver.running(["no_such_module"]) as python:
        early = started(python, script, 0)
        assert said(early)["imported"] is False
        early.communicate(timeout=60)
    late = started(python, script, 0)
    assert said(late)["imported"] is False
    late.communicate(timeout=60)


def test_the_server_ends_with_its_parent():
    code = """
import time
from typing import Any
from coding_model_project.verl_ext.cluster import forkserver
import psutil
with forkserver.running([]):
    print(psutil.Process().children()[0].pid, flush=True)
    time.sleep(100)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    assert gone(server)


SPAWNING = SOURCES["spawning"]


def spawned(tmp_path, seconds: object, end_by: str) -> dict[str, Any]:
    """Run a program whose `multiprocessing` starts a process of this lifetime and this end."""
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    done = subprocess.run(
        [sys.executable, script, str(seconds), end_by],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    return json.loads(done.stdout)


def test_multiprocessing_spawns_from_it_children_of_children_too(tmp_path):
    said = spawned(tmp_path, 2, "none")
    assert said["ended"]
    assert [(one["imported"], one["mine"]) for one in said["seen"]] == [(True, "1")] * 2
    assert len({one["pid"] for one in said["seen"]}) == 2


@pytest.mark.parametrize("end_by", ["SIGTERM", "SIGKILL"])
def test_a_spawned_process_ends_with_the_one_that_stands_for_it(tmp_path, end_by):
    said = spawned(tmp_path, 100, end_by)
    assert said["ended"]
    assert gone(said["seen"][0]["pid"])


def test_a_spawned_process_ends_with_a_client_that_never_read_its_id(tmp_path):
    """A client that is ended at once resets the connection instead of closing it."""
    told = tmp_path / "pid"
    code = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(100)"
    request = {
        "arguments": ["-c", code],
        "descriptors": [0, 1, 2],
        "environment": {},
        "folder": str(tmp_path),
        "nice": 0,
        "oom_score_adj": "0",
    }
    body = json.dumps(request).encode()
    with (
        forkserver.running(["xmlrpc.client"]) as python,
        open(os.devnull, "r+b") as null,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(shlex.split(python)[-1])
        socket.send_fds(client, [struct.pack("I", len(body))], [null.fileno()] * 3)
        client.sendall(body)
        wait_for(lambda: told.exists() and told.read_text() != "")
        client.close()
        assert gone(int(told.read_text()))


def test_a_process_that_is_killed_with_its_group_leaves_the_others(script):
    """Ray kills the process group of every worker that ends, even of an idle one."""
    with forkserver.running(["xmlrpc.client"]) as python:
        one, other = (started(python, script, 30) for _ in range(2))
        first, second = said(one)["pid"], said(other)["pid"]
        os.killpg(os.getpgid(first), signal.SIGKILL)
        assert gone(first)
        assert psutil.pid_exists(second)
        os.kill(second, signal.SIGTERM)
        assert said(started(python, script, 0))["imported"]  # the server still runs
