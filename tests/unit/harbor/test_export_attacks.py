"""Programs that know the verifier of exported tasks, against it: behind Landlock, and without it."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from coding_model_project.harbor.export.exporting import export
from coding_model_project.types import Asserts, Limits, Problem, Stdin, Test
from tests.processes import ran
from tests.text_cases import sources
from tests.unit.harbor.export_attacks import ATTACKS
from tests.waiting import wait_for

SOURCES = sources(__file__)

LIMITS = Limits(cpu_s=0.5, wall_s=1.5, output_kb=64, memory_mb=128)
ALONE = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
MAKES_FILES = SOURCES["makes files"]
USERS = {
    "root": [],
    "a user": ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"],
    "root without Landlock": [],
}
"""The verifier's user, and how it is started as that. Without Landlock, programs run as nobody."""
NOBODY = 65534


def can_be_alone() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    return subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode == 0


@cache
def python_for_all() -> str | None:
    """A Python that every user can start."""
    code = "import json, sys; assert sys.version_info >= (3, 11)"
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [path, "-c", code], check=False, user=NOBODY, group=NOBODY, extra_groups=[]
            )
            if done.returncode == 0:
                return path
    return None


pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(not can_be_alone(), reason="needs root, unshare and setpriv"),
]


@pytest.fixture
def tmp_path():
    """A folder that all users can enter: whenever another pytest starts, it closes pytest's own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Judge:
    """The verifier of an exported problem, in namespaces of its own."""

    def __init__(
        self, folder: Path, problem: Problem, program: str, user: str, changes: str = "pass"
    ) -> None:
        self.logs, (task,) = folder / "logs", export([problem], folder / "tasks").tasks
        shutil.rmtree(task / "solution")
        for path in (folder / "app", folder / "bin", self.logs):
            path.mkdir()
        python = python_for_all()
        if python is None:
            pytest.skip("no Python here that every user can start")
        (folder / "bin" / "python3").symlink_to(python)
        (folder / "app" / "solution.py").write_text(program)
        script = task / "tests" / "test.sh"
        text = script.read_text().replace("/app/", f"{folder}/app/")
        if user == "root without Landlock":
            changes += "; verifier.linux.landlock_abi = lambda: 0"
        verifier = 'verifier = sys.modules["coding_model_project.harbor.export.verifier"]'
        text = text.replace("; main(", f"; {verifier}; {changes}; main(")
        script.write_text(text.replace("/logs/verifier", str(self.logs)))
        if user == "a user":
            subprocess.run(["chown", "-R", "12345:12345", folder], check=True)
        for parent in (folder, *folder.parents[:-1]):
            if parent not in (Path("/tmp"), Path("/var/tmp")):
                parent.chmod(0o755)
        self.command = [*ALONE, *USERS[user], "bash", str(script)]
        self.env = {"PATH": f"{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

    def reward(self) -> float | None:
        done = ran(self.command, env=self.env, timeout=60)
        print(done.stdout, done.stderr)
        file = self.logs / "reward.json"
        return json.loads(file.read_text())["reward"] if file.exists() else None


def problems() -> tuple[Problem, Problem]:
    """A script and a function that have to give a number which nobody can guess."""
    secret = 4711 * 10**9 + secrets.randbelow(10**9)
    common = {"split": "train", "statement": "", "limits": LIMITS}
    return (
        Problem(
            id="a/1", gold=(f"print({secret})\n",), **common,
            tests=tuple(Test(Stdin(f"{k}\n"), expected=f"{secret}\n") for k in range(2)),
        ),
        Problem(
            id="a/2", gold=(f"def f(k): return {secret}\n",), **common,
            tests=tuple(Test(Asserts(f"assert f({k}) == {secret}", "f")) for k in range(2)),
        ),
    )  # fmt: skip


def attack(tmp_path: Path, name: str, program: str, user: str) -> list[float | None]:
    pattern = f"bytes({list(b'4711')}) + b'[0-9]' * 9"  # no text of it may find itself
    rewards = []
    for number, problem in enumerate(problems()):
        if number == 0 or "def f(" in program:
            (folder := tmp_path / str(number)).mkdir()
            text = program.replace("SECRET", pattern).replace("LOGS", repr(str(folder / "logs")))
            rewards.append(Judge(folder, problem, text, user).reward())
    return rewards


@pytest.mark.parametrize("user", USERS)
def test_the_solution_earns_its_reward(tmp_path, user):
    for problem in problems():
        (folder := tmp_path / problem.id.replace("/", "-")).mkdir()
        assert Judge(folder, problem, problem.gold[0], user).reward() == 1.0


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_earns_a_reward_or_loses_the_judgement(tmp_path, name, user):
    earned = attack(tmp_path, name, ATTACKS[name], user)
    assert set(earned) == {0.0}


def test_a_sandbox_that_others_end_gives_no_reward(tmp_path):
    """No program could have done it: this is no score."""
    sleeps = "import time\ntime.sleep(100)\n"
    judge = Judge(tmp_path, problems()[0], sleeps, "root without Landlock")
    with subprocess.Popen(
        judge.command, env=judge.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        zygote = first_of_nobodys(str(tmp_path))
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        _, errors = running.communicate(timeout=60)
    assert "the sandbox failed" in errors
    assert list(judge.logs.iterdir()) == []


def test_nothing_of_the_sandbox_outlives_its_verifier(tmp_path):
    limits = Limits(cpu_s=0.5, wall_s=60, output_kb=64, memory_mb=128)
    sleeps = "import time\ntime.sleep(60)\n"
    judge = Judge(tmp_path, replace(problems()[0], limits=limits), sleeps, "root without Landlock")
    judge.command = judge.command[len(ALONE) :]  # their namespace would end all of them
    with subprocess.Popen(judge.command, env=judge.env) as running:
        assert first_of_nobodys(str(tmp_path)) is not None
        running.kill()
    wait_for(lambda: first_of_nobodys(str(tmp_path), n_looks=1, least=1) is None)


def test_a_program_that_the_kernel_ended_for_lack_of_memory_gets_no_score(tmp_path):
    """A verifier's machine may have less memory than the problem's limit."""
    ends = "import os\nos.kill(os.getpid(), 9)\n"
    for count, reward in (("lambda: 0", 0.0), ("iter(range(9)).__next__", None)):
        (folder := tmp_path / str(reward)).mkdir()
        judge = Judge(folder, problems()[0], ends, "root", f"verifier.oom_kills = {count}")
        assert judge.reward() == reward


@pytest.mark.parametrize(("size", "reward"), [("64k", None), ("4m", 1.0)])
def test_a_full_disk_where_files_in_memory_are_denied_is_no_score(size, reward):
    """Such as in a room. The program's output would not fit."""
    denied = "verifier.os.memfd_create = lambda name: (_ for _ in ()).throw(PermissionError)"
    limits = Limits(cpu_s=0.5, wall_s=1.5, output_kb=256, memory_mb=128)
    problem = replace(
        problems()[0], limits=limits, tests=(Test(Stdin("x" * 99999), expected="99999"),)
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        judge = Judge(Path(folder), problem, "print(len(input()))", "root", denied)
        mounts = f'mount -t tmpfs -o size={size} none /tmp && exec "$@"'
        judge.command[len(ALONE) : len(ALONE)] = ["sh", "-c", mounts, "sh"]
        assert judge.reward() == reward


@pytest.mark.parametrize("user", USERS)
def test_programs_make_no_files_anywhere(tmp_path, user):
    """They could fill the disk, so that no reward can be written, or leave notes for later inputs."""
    problem = replace(problems()[0], tests=(Test(Stdin(""), expected="nothing\n"),))
    assert Judge(tmp_path, problem, MAKES_FILES, user).reward() == 1.0


def test_answers_that_are_too_large_together_are_judged(tmp_path):
    limits = Limits(cpu_s=1, wall_s=3, output_kb=1024, memory_mb=128)
    tests = tuple(Test(Stdin(f"{k}\n"), expected="x\n") for k in range(260))
    problem = replace(problems()[0], limits=limits, tests=tests)
    judge = Judge(tmp_path, problem, "print('x' * ((1 << 20) - 9))\n", "root")
    assert judge.reward() == 0.0


@pytest.mark.parametrize("to", ["/proc/self/mem", "/proc/kmsg", "/dev/zero", "solution.py"])
def test_a_link_instead_of_a_program_earns_nothing(tmp_path, to):
    judge = Judge(tmp_path, problems()[0], "", "a user")
    (program := tmp_path / "app" / "solution.py").unlink()
    program.symlink_to(to)
    assert judge.reward() == 0.0


def first_of_nobodys(mark: str, n_looks: int = 500, least: int = 3) -> int | None:
    """The first process of nobody's whose command line has this, once there are as many.

    They are the zygote, the program's process, and the test's.
    """
    for _ in range(n_looks):
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                status, command = (folder / "status").read_text(), (folder / "cmdline").read_text()
                if mark in command and f"Uid:\t{NOBODY}" in status:
                    found.append(int(folder.name))
        if len(found) >= least:
            return min(found)
        time.sleep(0.01)
    return None


def test_byte_code_of_another_python_is_not_used(tmp_path):
    problem = problems()[0]
    judge = Judge(tmp_path, problem, problem.gold[0], "root")
    (archive,) = tmp_path.rglob("judge.zip")
    with zipfile.ZipFile(archive) as old:
        files = {name: old.read(name) for name in old.namelist()}
    compiled = [name for name in files if name.endswith(".pyc")]
    assert sorted(compiled) == sorted(f"{name}c" for name in files if name.endswith(".py"))
    with zipfile.ZipFile(archive, "w") as new:
        for name, content in files.items():
            new.writestr(name, b"\0\0\r\n" + content[4:] if name in compiled else content)
    assert judge.reward() == 1.0
