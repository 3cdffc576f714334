"""A run whose host died is taken over; one that lives on another host never is, whatever its clock says.

Hosts are processes in namespaces of their own: process ids, host name and, where it matters, mounts.
"""

import os
import re
import signal
import subprocess
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coding_model_project.errors import ConfigError, StorageError
from coding_model_project.runs import lease, provenance
from coding_model_project.runs.folder import RunFolder, State
from coding_model_project.runs.lease import LEASE_S, Heartbeat, Observer, Pulse, beat
from coding_model_project.runs.starting import _write_attempt
from tests.hosts import host, needs_namespaces
from tests.text_cases import sources
from tests.unit.runs.test_folder import start

SOURCES = sources(__file__)

pytestmark = [pytest.mark.sandbox, needs_namespaces]

PRELUDE = SOURCES["prelude"]
TRAIN = """
attempt = start(path)
with Heartbeat(attempt.log_dir, beat_s=0.1):
    print("started", flush=True)
    time.sleep(60)
"""


def attempt_on(name, code, path):
    return host(name, PRELUDE + textwrap.dedent(code), path)


def started(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"


def child(process: subprocess.Popen[str]) -> int:
    """The program that `unshare` runs."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


@pytest.fixture
def short_lease(monkeypatch):
    monkeypatch.setattr(lease, "LEASE_S", 2.0)


@pytest.mark.parametrize("hours", [-1, 24])
def test_a_live_attempt_elsewhere_is_refused_whatever_its_clock_says(tmp_path, short_lease, hours):
    clock = f"now = time.time; time.time = lambda: now() + {hours} * 3600\n"
    with attempt_on("node-b", clock + TRAIN, tmp_path) as process:
        started(process)
        said = []
        with pytest.raises(ConfigError) as caught:
            start(tmp_path, force=True, say=said.append)
    where = rf"coding.run_dir={tmp_path}: .* \(process 1 on node-b, its last heartbeat \d+ s ago\)"
    assert re.match(where, str(caught.value))
    assert len(said) == 1 and "watching its heartbeat" in said[0]


def test_a_dead_host_is_taken_over_by_the_same_command(tmp_path, short_lease):
    with attempt_on("node-b", TRAIN, tmp_path) as process:
        started(process)
        os.kill(child(process), signal.SIGKILL)
        process.wait()
    said = []
    assert RunFolder(tmp_path).attempts()[0].state is State.running  # not known any better yet
    assert start(tmp_path, say=said.append).number == 2
    assert "attempt 1 on node-b is dead: taking over" in said[1]
    assert [one.state for one in RunFolder(tmp_path).attempts()] == [State.killed, State.running]


def test_of_two_that_take_over_at_once_one_does(tmp_path):
    with attempt_on("node-b", TRAIN, tmp_path) as process:
        started(process)
    code = """
        try:
            attempt = start(path)
            with Heartbeat(attempt.log_dir, beat_s=0.1):
                print(attempt.number, flush=True)
                time.sleep(60)
        except CodingModelError as error:
            print(error)
    """
    with (
        attempt_on("node-c", code, tmp_path) as first,
        attempt_on("node-d", code, tmp_path) as second,
    ):
        number, refused = sorted(process.stdout.readline() for process in (first, second))
    assert number == "2\n"
    assert "another process has just started attempt 2" in refused or "is running" in refused


IGNORED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""As a shell starts the background jobs of a script."""


@pytest.mark.parametrize("before", ["", IGNORED])
def test_one_that_comes_back_finds_its_run_taken_over_and_ends(tmp_path, short_lease, before):
    code = f"""
        {before}
        try:
        {textwrap.indent(TRAIN, "            ")}
        except CodingModelError as error:
            print(error)
            sys.exit(error.exit_code)
    """
    with attempt_on("node-b", code.replace("        \n", ""), tmp_path) as process:
        started(process)
        os.kill(child(process), signal.SIGSTOP)
        assert start(tmp_path).number == 2
        os.kill(child(process), signal.SIGCONT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out.startswith(f"{tmp_path}/logs/attempt_1: a later attempt has taken this run over")
    assert ": ending" in err


def test_a_full_disk_does_not_stop_the_heart(tmp_path):
    code = """
        import subprocess
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)], check=True)
        attempt = start(path)
        with Heartbeat(attempt.log_dir, beat_s=0.1), (path / "big").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                before = (attempt.log_dir / "heartbeat").read_bytes()
                time.sleep(0.5)
                print((attempt.log_dir / "heartbeat").read_bytes() != before)
                file.truncate(0)
    """
    with attempt_on("node-b", code, tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert out == "True\n", err


class Clock:
    """One that only sleeping moves; meanwhile things may happen."""

    def __init__(self, happens=lambda now: None):
        self.now = 1000.0
        self.happens = happens

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.happens(self.now)


def test_one_change_may_be_a_cache_that_ran_out(tmp_path):
    beat(tmp_path, 1)
    clock = Clock(lambda now: beat(tmp_path, 2) if now == 1060 else None)
    observer = Observer(clock=clock, sleep=clock.sleep)
    assert observer.watch(tmp_path) is Pulse.stopped
    assert clock.now == 1060 + LEASE_S


def test_an_nfs_client_that_shows_every_sixth_beat_sees_a_live_one(tmp_path):
    beat(tmp_path, 0)
    clock = Clock(lambda now: beat(tmp_path, int(now)) if now % 60 == 0 else None)
    observer = Observer(clock=clock, sleep=clock.sleep)
    assert observer.watch(tmp_path) is Pulse.beating
    assert observer.age_s(tmp_path) == 0


def elsewhere(path, **fields):
    """An attempt of another machine."""
    attempt = start(path)
    _write_attempt(RunFolder(path), replace(attempt, machine="another", host="node-b", **fields))
    return attempt.log_dir


def test_an_attempt_without_a_heartbeat_is_watched_before_it_is_dead(tmp_path):
    (elsewhere(tmp_path) / "heartbeat").unlink()
    clock = Clock()
    assert start(tmp_path, observer=Observer(clock=clock, sleep=clock.sleep)).number == 2
    assert clock.now >= 1000 + LEASE_S


def test_a_start_that_was_killed_half_way_does_not_block_the_next(tmp_path):
    (tmp_path / "logs" / "attempt_1").mkdir(parents=True)
    clock = Clock()
    assert start(tmp_path, observer=Observer(sleep=clock.sleep)).number == 2
    assert RunFolder(tmp_path).last_number == 2


def test_one_that_has_just_begun_to_start_is_waited_for(tmp_path):
    log_dir = tmp_path / "logs" / "attempt_1"
    log_dir.mkdir(parents=True)
    clock = Clock(lambda _: (log_dir / "attempt.json").write_text("{}"))
    with pytest.raises(ConfigError, match="attempt 1"):
        start(tmp_path, observer=Observer(sleep=clock.sleep))


def test_a_start_that_takes_long_is_not_passed_by_another(tmp_path, monkeypatch):
    """Such as one that reads the versions of all packages from a slow disk."""
    clock = Clock()
    collect, refused = provenance.collect, []

    def slow(*given, **named):
        monkeypatch.setattr(provenance, "collect", collect)
        with pytest.raises(ConfigError) as caught:
            start(tmp_path, observer=Observer(sleep=clock.sleep))
        refused.append(str(caught.value))
        return collect(*given, **named)

    monkeypatch.setattr(provenance, "collect", slow)
    assert start(tmp_path).number == 1
    assert "the run is running" in refused[0]


def test_a_start_that_fails_is_recorded_as_ended(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(provenance, "collect", full)
    with pytest.raises(OSError, match="No space"):
        start(tmp_path)
    assert RunFolder(tmp_path).state is State.failed
    monkeypatch.undo()
    assert start(tmp_path).number == 2


def test_a_list_of_runs_shows_one_that_died_long_ago_as_killed(tmp_path, monkeypatch):
    log_dir = elsewhere(tmp_path)
    assert RunFolder(tmp_path).state is State.running
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 4000 - LEASE_S)
    beat(log_dir, 5)
    monkeypatch.undo()
    assert RunFolder(tmp_path).state is State.killed


def test_a_heartbeat_that_cannot_be_read_is_no_dead_run(tmp_path):
    log_dir = elsewhere(tmp_path)
    (log_dir / "heartbeat").unlink()
    (log_dir / "heartbeat").mkdir()
    assert RunFolder(tmp_path).state is State.running
    with pytest.raises(StorageError, match=r"heartbeat: cannot be read \(Is a directory\)"):
        start(tmp_path, force=True)


def test_a_heart_looks_past_a_cache_that_says_there_is_no_successor(tmp_path):
    """An NFS client repeats that a file is absent, until it changes the folder itself."""
    code = """
        import os
        log_dir = start(path).log_dir
        really, changed = lease.has_successor, log_dir.parent.stat().st_mtime_ns
        lease.has_successor = lambda one: one.parent.stat().st_mtime_ns != changed and really(one)
        log_dir.with_name("attempt_2").mkdir()
        os.utime(log_dir.parent, ns=(changed, changed))
        try:
            with Heartbeat(log_dir, beat_s=0.5):
                time.sleep(30)
        except CodingModelError as error:
            print(error)
    """
    with attempt_on("node-b", code, tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert "a later attempt has taken this run over" in out, err


def test_an_interrupt_is_heard_while_a_run_beats_and_ignored_as_before_after_it(tmp_path):
    """Evaluations also turn SIGTERM into it."""
    log_dir = start(tmp_path).log_dir
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), Heartbeat(log_dir):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
