"""Nothing of a run or of a child process stays behind, whatever ends it, and failures have reasons."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.isolation import child, processes
from coding_model_project.isolation.child import Helper, interrupting, start_child
from coding_model_project.sandbox.embedded import frames
from tests.processes import below
from tests.text_cases import sources
from tests.waiting import wait_for

SOURCES = sources(__file__)

pytestmark = pytest.mark.sandbox

RUN = SOURCES["run"]


@pytest.mark.parametrize("seconds", [0, 100], ids=["ends", "killed"])
def test_neither_processes_nor_temporary_files_stay(seconds):
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pid, file = run.stdout.readline().split()
    if seconds:
        run.send_signal(signal.SIGKILL)
    run.wait(60)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (
        psutil.pid_exists(int(pid)) or Path(file).parent.exists()
    ):
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid))
    assert not Path(file).parent.exists()
    assert Path(file).parent.name.startswith("run-")


def test_only_a_folder_of_the_run_itself_is_made_and_removed_on_other_nodes(monkeypatch):
    monkeypatch.setenv(processes.TOKEN, "abc")
    monkeypatch.setenv("TMPDIR", "/scratch/me")
    assert processes.own_temporary_files() == ("abc", "")
    monkeypatch.setenv("TMPDIR", "/scratch/run-abc")
    assert processes.own_temporary_files() == ("abc", "/scratch/run-abc")


def test_a_stand_in_ends_what_carries_the_token_and_removes_the_folder(tmp_path):
    folder = tmp_path / "run-abc"
    asleep = subprocess.Popen(["sleep", "60"], env={processes.TOKEN: "abc"})
    code = (
        f"from coding_model_project.isolation import processes as p; p.stand_in('abc', '{folder}')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert asleep.wait(60) != 0
    wait_for(lambda: not folder.exists())


def test_a_stand_in_does_its_work_though_its_process_kills_all_children_at_exit(tmp_path):
    asleep = subprocess.Popen(["sleep", "60"], env={processes.TOKEN: "abc"})
    code = SOURCES["stand-in whose process kills its children"]
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "run-abc")], check=True)
    assert asleep.wait(60) != 0


# ── child processes ───────────────────────────────────────────────────────────────────────────────


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


@pytest.mark.parametrize("how", ["killed", "exits"])
@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.3])
def test_a_helper_does_not_outlive_a_host_that_ends_amid_the_start(how, after_s):
    command, pipe = (
        [sys.executable, "-c", SOURCES["host of a helper"], str(after_s), how],
        subprocess.PIPE,
    )
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
    script = SOURCES["saves when it is interrupted"]
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
