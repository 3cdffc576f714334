"""Child processes: whatever happens to them or to their host, none stays, and failures have reasons."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.isolation import child
from coding_model_project.isolation.child import Helper, interrupting, start_child
from coding_model_project.sandbox.embedded import frames
from tests.processes import below

pytestmark = pytest.mark.sandbox

ZYGOTE = "coding_model_project.sandbox.embedded.zygote"


def starting(preload="", **options):
    return Helper.starting(ZYGOTE, "rlimit", preload, "", **options)


def started():
    with starting() as helper:
        assert frames.receive(helper.channel)[0]["ready"]
    return helper


def test_a_helper_that_does_not_start_says_why():
    with (
        pytest.raises(ChildProcessError, match=r"^ModuleNotFoundError: .* 'nothing_of_this_name'$"),
        starting("nothing_of_this_name") as helper,
    ):
        frames.receive(helper.channel)
    assert not below(ZYGOTE)
    with pytest.raises(ChildProcessError, match="No such file"), starting(python="/no/python"):
        pass


def test_a_helper_that_says_nothing_in_time_is_killed(monkeypatch):
    monkeypatch.setattr(child, "_START_S", 0.1)
    with pytest.raises(ChildProcessError, match="timed out"), starting() as helper:
        helper.process.send_signal(signal.SIGSTOP)
        frames.receive(helper.channel)
    assert not below(ZYGOTE)


def test_an_interruption_amid_the_start_ends_the_helper():
    open_before = psutil.Process().num_fds()
    with pytest.raises(KeyboardInterrupt), starting():
        raise KeyboardInterrupt
    assert not below(ZYGOTE)
    assert psutil.Process().num_fds() == open_before


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_stopping_ends_a_helper_that_hangs_or_is_gone(number):
    helper = started()
    helper.process.send_signal(number)
    helper.stop()
    helper.stop()
    assert helper.process.returncode == -signal.SIGKILL
    assert not below(ZYGOTE)


def test_a_helper_ends_by_itself_though_a_fork_of_its_host_has_the_channel():
    helper = started()
    fork = os.fork()
    if fork == 0:
        time.sleep(60)
        os._exit(0)
    try:
        helper.stop()
        assert helper.process.returncode == 0
    finally:
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


_HOST = f"""
import sys, time
from coding_model_project.isolation.child import Helper
with Helper.starting({ZYGOTE!r}, "rlimit", "", "") as helper:
    print(helper.process.pid, flush=True)
    time.sleep(float(sys.argv[1]))
    sys.stdin.read() if sys.argv[2] == "killed" else sys.exit()
"""


@pytest.mark.parametrize("how", ["killed", "exits"])
@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.3])
def test_a_helper_does_not_outlive_a_host_that_ends_amid_the_start(how, after_s):
    command, pipe = [sys.executable, "-c", _HOST, str(after_s), how], subprocess.PIPE
    host = subprocess.Popen(command, stdin=pipe, stdout=pipe)
    with host:
        assert host.stdout is not None
        helper = psutil.Process(int(host.stdout.readline()))
        if how == "killed":
            time.sleep(after_s)
            host.kill()
    assert host.returncode == (-signal.SIGKILL if how == "killed" else 0)
    _, left = psutil.wait_procs([helper], timeout=10)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]


def test_an_exception_interrupts_a_command_and_waits_for_it(tmp_path):
    script = (
        "import time\n"
        "try:\n    print('running', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('saved', flush=True)\n"
    )
    with (tmp_path / "log").open("w+b") as log:
        with (
            pytest.raises(ValueError, match="mine"),
            interrupting(start_child([sys.executable, "-c", script], log=log)) as process,
        ):
            while not os.fstat(log.fileno()).st_size:
                time.sleep(0.01)
            raise ValueError("mine")
        assert process.returncode == 0
    assert (tmp_path / "log").read_text() == "running\nsaved\n"


def test_rooms_open_beside_many_files_of_their_host():
    try:
        asyncio.run(_open_rooms())
    except EnvironmentFailed as error:
        pytest.skip(f"no tier namespaces: {error}")
    files = []
    while not files or files[-1].fileno() < 247:  # the next have numbers that a keeper uses itself
        files.append(socket.socket())
    try:
        for _ in range(4):
            asyncio.run(_open_rooms())
            files.append(socket.socket())
    finally:
        for file in files:
            file.close()


async def _open_rooms():
    async with EmbeddedEnvironments():
        pass


async def test_rooms_whose_opening_is_cancelled_leave_no_process():
    opening = asyncio.create_task(_open_rooms())
    while not below("rooms.keeper"):
        await asyncio.sleep(0.001)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not below("rooms.keeper")
