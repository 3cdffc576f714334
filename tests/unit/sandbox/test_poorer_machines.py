"""The tier that the probe selects, and its messages, on machines that allow less than this one."""

import os
import platform
import sys
from pathlib import Path

import pytest

from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import supervisor
from coding_model_project.types import Execution, Status
from tests.processes import ran
from tests.text_cases import sources
from tests.unit.sandbox import poorer

pytestmark = pytest.mark.sandbox

POORER = str(Path(poorer.__file__))


@pytest.fixture(params=["same", "nobody"])
def user(request) -> str:
    if request.param == "nobody" and os.getuid() != 0:
        pytest.skip("this is an ordinary user already")
    return request.param


def check(user: str, refused: str, *options: str) -> tuple[int, str]:
    if problem := supervisor.why_not(Tier.namespaces, sys.executable):
        pytest.skip(f"this machine is poor itself: {problem}")
    if supervisor.why_not(Tier.seccomp, sys.executable):
        pytest.skip("no Landlock here")
    program = sources(__file__)["strongest tier"]
    command = [sys.executable, POORER, user, refused, sys.executable, "-c", program, *options]
    environment = os.environ | {"PYTHONPATH": str(poorer.ROOT)}
    done = ran(command, timeout=60, env=environment)
    if user == "nobody" and done.returncode == poorer.UNREADABLE:
        pytest.skip(done.stdout.strip())
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("refused", "minimum", "tier"),
    [
        ("", "seccomp", "namespaces"),
        ("landlock_create_ruleset", "seccomp", "namespaces"),
        ("seccomp", "rlimit", "rlimit"),
        # Containers, and kernels that allow namespaces only in part:
        *(
            (n, "seccomp", "seccomp")
            for n in ("unshare", "clone", "mount", "pivot_root", "mount_setattr")
        ),
    ],
)
def test_the_strongest_tier_that_works(user, refused, minimum, tier):
    assert check(user, refused, minimum) == (0, f"{tier}\n")


def test_with_neither(user):
    code, said = check(user, "mount,landlock_create_ruleset", "seccomp")
    assert code == check(user, "seccomp", "seccomp")[0] == 3
    for part in ("no Landlock", "'mount'", "accept a lower min_tier"):
        assert part in said


def test_on_another_architecture(monkeypatch):
    from coding_model_project.isolation import linux

    monkeypatch.setattr(linux, "_COLUMN", None)
    with pytest.raises(OSError, match=f"no system call table for {platform.machine()}"):
        linux.Filter()


def test_actions_that_succeeded_are_named_whole(monkeypatch):
    class Open(supervisor.Slot):
        def run(self, program, inputs, limits, executions, stop):
            executions.append(Execution(status=Status.finished, stdout="network\nhost files\n"))

    monkeypatch.setattr(supervisor, "Slot", Open)
    problem = supervisor.why_not.__wrapped__(Tier.seccomp, sys.executable)
    assert problem == "the self-test was not denied: network, host files"
