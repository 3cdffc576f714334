"""Batteries are read strictly and judged truthfully; our own gets nothing, at each tier that isolates."""

import json
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from coding_model_project import cli
from coding_model_project.errors import ConfigError
from coding_model_project.grading.battery import run_cases
from coding_model_project.grading.battery.battery_cases import read_cases
from coding_model_project.grading.battery.run_cases import run_battery, summary
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import supervisor
from coding_model_project.types import Asserts, Call, Execution, Status, Stdin
from tests.fakes import FakeSandbox
from tests.tables import tables

_OWN_FOLDERS = [
    *("unshare", "--mount", "sh", "-c"),
    'for folder in /tmp /var/tmp /dev/shm; do mount -t tmpfs own "$folder"; done; exec "$@"',
    "sh",
]
_PYTHON = [sys.executable, "-m", "coding_model_project"]


def battery(cases: Path, *options: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of the command, which sees no other test's files."""
    command = [*_prefix(), *_PYTHON, "sandbox", "battery", "/dev/stdin", *options]
    with cases.open() as file:
        done = subprocess.run(command, stdin=file, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@cache
def _prefix() -> list[str]:
    """Folders of its own need rights, and an interpreter that lies elsewhere."""
    try:
        done = subprocess.run([*_OWN_FOLDERS, *_PYTHON, "--help"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return [] if done.returncode else _OWN_FOLDERS


CASES = tables("battery")

pytestmark = pytest.mark.xdist_group("battery")  # it listens on ports that are always the same

CASE = CASES["case"]


def written(folder: Path, *rows: object) -> Path:
    path = folder / "battery.jsonl"
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def changed(**fields: object) -> dict[str, object]:
    return CASE | fields


def require(**fields: object) -> dict[str, object]:
    return changed(require={**CASE["require"], **fields})


def test_cases_are_problems(tmp_path):
    call = changed(id="2", mode="call", entry="f", tests=[{"input": [1, [2]], "expected": 3}])
    asserts = changed(id="3", mode="assert", entry="f", tests=["assert f(1)"], category="control")
    control = require(reward=1, verdict_in=["accepted"]) | {"id": "4", "category": "edge"}
    cases = read_cases(written(tmp_path, CASE, "", call, asserts, control))
    assert [case.problem.tests[0].input for case in cases[:3]] == [
        Stdin(""),
        Call(function="f", args=(1, [2])),
        Asserts(source="assert f(1)", entry_point="f"),
    ]
    limits = cases[0].problem.limits
    assert (limits.cpu_s, limits.wall_s, limits.memory_mb, limits.output_kb) == (1.0, 3.0, 128, 64)
    assert [case.attack for case in cases] == [True, True, False, False]
    assert [case.control for case in cases] == [False, False, False, True]


@pytest.mark.parametrize(("row", "says"), CASES["malformed"])
def test_malformed_lines_are_named(tmp_path, row, says):
    with pytest.raises(ConfigError, match=rf"battery.jsonl:2: .*{says}"):
        read_cases(written(tmp_path, changed(id="fine"), row))


def test_other_malformed_files(tmp_path):
    with pytest.raises(ConfigError, match="no cases"):
        read_cases(written(tmp_path, ""))
    with pytest.raises(ConfigError, match=":2: id: 'one' occurs twice"):
        read_cases(written(tmp_path, CASE, CASE))


def answering(**stdout: str) -> FakeSandbox:
    """A sandbox in which programs print what is given for their source; the honest one is right."""

    def answer(source: str, _given: object) -> Execution:
        text = "42" if source == run_cases._HONEST else stdout.get(source, "")
        return Execution(status=Status.finished, stdout=text)

    return FakeSandbox(answer=answer, identity="fake/steel/1")


async def outcome(tmp_path: Path, row: dict[str, object], sandbox: FakeSandbox):
    outcomes, _ = await run_battery(read_cases(written(tmp_path, row)), sandbox)
    return outcomes[0]


async def test_what_is_met(tmp_path):
    found = await outcome(tmp_path, CASE, answering())
    assert (found.verdict, found.unmet) == ("wrong_answer", ())


@pytest.mark.parametrize(
    ("row", "printed", "unmet"),
    [
        (CASE, "2", ["reward: accepted", "verdict_in: accepted"]),
        (require(reward=1, verdict_in=["accepted"]), "3", ["reward: wrong_answer", "verdict_in"]),
        (require(forbid_stdout=["LEAK"]), "a LEAK", ["forbid_stdout: 'LEAK'"]),
        (require(then_forbid_stdout=["KEPT"]) | {"then": "next"}, "", ["then_forbid_stdout"]),
    ],
)
async def test_what_is_not(tmp_path, row, printed, unmet):
    sandbox = answering(**{"print(1)": printed, "next": "KEPT"})
    found = await outcome(tmp_path, row, sandbox)
    assert len(found.unmet) == len(unmet)
    assert all(a.startswith(b) for a, b in zip(found.unmet, unmet, strict=True))
    assert found.succeeded


async def test_bait_that_is_taken_is_seen(tmp_path):
    def greedy(source: str, _given: object) -> Execution:
        if source == run_cases._HONEST:
            return Execution(status=Status.finished, stdout="42")
        secret = Path("/tmp/sbx_canary/secret.txt").read_text()
        assert os.environ["SBX_CANARY"] == secret
        socket.create_connection(("127.0.0.1", 47921), 1).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"x", ("127.0.0.1", 47922))
        for address in ("\0sbx_canary_sock", "/tmp/sbx_canary/sock"):
            with socket.socket(socket.AF_UNIX) as unix:
                unix.connect(address)
        return Execution(status=Status.finished, stderr_tail=secret)

    found = await outcome(tmp_path, CASE, FakeSandbox(answer=greedy))
    assert "no_canary: the secret was seen" in found.unmet
    assert "no_listener_hit: tcp, udp, abstract unix, unix" in found.unmet
    assert "SBX_CANARY" not in os.environ
    assert not Path("/tmp/sbx_canary/secret.txt").exists()


async def test_a_dead_judge_is_seen(tmp_path):
    found = await outcome(tmp_path, CASE, FakeSandbox(failures=99))
    assert [one.split(":")[0] for one in found.unmet] == ["verdict_in", "judge_alive"]


async def test_summary(tmp_path):
    control = require(reward=1, verdict_in=["accepted"]) | {"id": "two", "category": "control"}
    renamed = require(verdict_in=["timeout"]) | {"id": "three"}
    edge = changed(id="four", category="edge")
    cases = read_cases(written(tmp_path, CASE, control, renamed, edge))
    outcomes, _ = await run_battery(cases, answering())
    counts = {"cases": 4, "passed": 2, "attacks": 2, "controls": 1, "controls_failed": 1}
    counts |= {"attacks_succeeded": 0, "tier": "steel"}  # another verdict's name is no success
    assert summary(outcomes, "steel") == counts | {"failed": ["two", "three"]}


# ── the command ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.sandbox
def test_command(tmp_path):
    right = require(reward=1, verdict_in=["accepted"]) | {"id": "right", "code": "print(2)"}
    code, lines = battery(written(tmp_path, CASE, right))
    assert (code, json.loads(lines[-1])["passed"]) == (0, 2)
    wrong = require(verdict_in=["timeout"]) | {"id": "wrong"}
    code, (first, last) = battery(written(tmp_path, wrong), "--tier", "rlimit")
    assert (code, first) == (1, "wrong: verdict_in: wrong_answer")
    assert (json.loads(last)["failed"], json.loads(last)["tier"]) == (["wrong"], "rlimit")
    code, (only,) = battery(written(tmp_path, wrong), "--tier", "rlimit", "--json")
    assert (code, json.loads(only)["cases"]) == (1, 1)


def test_command_refuses(tmp_path, capsys):
    path = str(written(tmp_path, CASE))
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")
    for options, says in (
        ([str(tmp_path / "none")], "no such file"),
        ([str(broken), "--json"], ":1: case: Invalid JSON"),
        ([path, "--tier", "steel"], "steel"),
        ([path, "--sandbox", "nonsense"], "--sandbox=nonsense"),
        ([path, "--sandbox", "http://x", "--tier", "rlimit"], "--tier"),
    ):
        assert cli.main(["sandbox", "battery", *options]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert len(error.splitlines()) == 1


# ── our own: a hole that is found gets a case in own.jsonl ────────────────────────────────────────


OWN = Path(__file__).parents[2] / "sandbox_battery" / "own.jsonl"
OWN_CASES = read_cases(OWN)


@pytest.mark.sandbox
@pytest.mark.parametrize("tier", [Tier.namespaces, Tier.seccomp])
def test_every_case_is_met(tier):
    if problem := supervisor.why_not(tier, sys.executable):
        pytest.skip(f"tier {tier} does not work here: {problem}")
    code, lines = battery(OWN, "--tier", tier)
    *unmet, last = lines
    assert (code, unmet) == (0, [])
    found = json.loads(last)
    assert (found["tier"], found["passed"]) == (tier, len(OWN_CASES))


def test_it_attacks_in_every_way_and_asks_honest_questions():
    assert sum(case.attack for case in OWN_CASES) >= 80
    assert sum(case.control for case in OWN_CASES) >= 30
    for mode in ("stdio", "call", "assert"):
        inputs = {"stdio": "Stdin", "call": "Call", "assert": "Asserts"}[mode]
        assert any(type(c.problem.tests[0].input).__name__ == inputs for c in OWN_CASES if c.attack)
