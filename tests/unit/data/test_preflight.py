"""Findings of a preflight: rates, mutants, flaky problems, sets that must not train; and its journal."""

import asyncio
import json
from dataclasses import replace

import orjson
import pytest

from coding_model_project import cli
from coding_model_project.cli import data_checks, options
from coding_model_project.cli.options import Resumable
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.quality.preflight import UNPROVEN, UNREACHED, Preflight, check_all
from coding_model_project.errors import DataError, SandboxError
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Execution, Problem, Status, Stdin, Test
from tests.fakes import FakeSandbox, stdin_problem
from tests.preflights import preflight
from tests.tables import tables
from tests.unit.data.rows import published
from tests.unit.data.test_mutants import run

CASES = tables("data")

GOLD = "n = int(input())\nif n > 3:\n    print(n * 2)\nelse:\n    print(0)"


def doubled(name="fake/1", **fields):
    return stdin_problem(("4", "8"), ("3", "0"), ("9", "18"), id=name, **{"gold": (GOLD,)} | fields)


async def test_mutants_that_the_tests_tell_apart_are_judged_and_rejected():
    result = await preflight([doubled()], FakeSandbox(answer=run), mutants_per_problem=5)
    assert result.passed
    said = result.mutation
    assert said.judged == said.rejected == 5
    assert (said.problems, said.with_two_operators) == (1, 1)
    assert result.bad.hits == result.bad.total == 5


async def test_mutants_that_pass_are_set_aside():
    problem = stdin_problem(("4", "8"), gold=("print(int(input()) * 2 if 1 < 3 else 7)",))
    result = await preflight([problem], FakeSandbox(answer=run), mutants_per_problem=20)
    assert result.mutation.set_aside >= 2, "1 < 4, 1 <= 3 and 8 for 7 change nothing"
    assert result.mutation.judged == result.mutation.rejected > 0


async def test_a_judge_that_accepts_a_mutant_is_found():
    calls = 0

    def lenient(source, given):
        """Right about everything in a plain run, and then fooled."""
        nonlocal calls
        calls += 1
        answer = run(source, given)
        fooled = "n - 2" in source and source in seen
        seen.add(source)
        return Execution(status=Status.finished, stdout="8") if fooled else answer

    seen: set[str] = set()
    problem = stdin_problem(("4", "8"), gold=("n = int(input())\nprint(n + 4)",))
    fooled = stdin_problem(("4", "6"), gold=("n = int(input())\nprint(n + 2)",), id="fake/2")
    result = await preflight([problem], FakeSandbox(answer=lenient), mutants_per_problem=9)
    assert result.passed
    seen.clear()

    def accept(source, given):
        answer = lenient(source, given)
        return answer if answer.stdout != "8" else Execution(status=Status.finished, stdout="6")

    result = await preflight([fooled], FakeSandbox(answer=accept), mutants_per_problem=9)
    assert not result.passed
    assert "mutant accepted" in result.complaints[0]
    assert list(result.quarantined) == ["fake/2"]


async def test_flaky_problems_are_found_by_repeats():
    count = 0

    def sometimes(source, given):
        nonlocal count
        count += source == "flaky"
        wrong = not source or (source == "flaky" and count % 2 == 0)
        return Execution(status=Status.finished, stdout="wrong" if wrong else "1")

    problems = [
        stdin_problem(("", "1"), id="fake/1", gold=("flaky",)),
        stdin_problem(("", "1"), id="fake/2", gold=("steady",)),
    ]
    result = await preflight(problems, FakeSandbox(answer=sometimes), repeats=4)
    assert result.flaky == ("fake/1",)
    assert not result.passed
    assert "flaky: accepted in" in result.quarantined["fake/1"][0]
    assert result.gold_accepted == 1


async def test_unusable_problems_are_quarantined_and_an_outage_is_not_their_fault():
    unusable = stdin_problem(("", "1"), id="fake/2", gold=("1",), comparison="nonsense")
    problems = [stdin_problem(("", "1"), gold=("1",)), unusable]
    result = await preflight(problems, FakeSandbox())
    assert result.gold_accepted == 1
    assert "unusable" in result.quarantined["fake/2"][0]
    with pytest.raises(SandboxError):
        await preflight(problems[:1], FakeSandbox(failures=10))


async def test_tests_that_accept_a_program_that_does_nothing_are_named():
    empty = stdin_problem(("4", " "), id="fake/1", gold=("",))
    result = await preflight([doubled("fake/0"), empty], FakeSandbox(answer=run))
    assert not result.passed
    assert [name for name, why in result.quarantined.items() if UNREACHED in why[0]] == ["fake/1"]
    assert (result.bad.total, result.gold_accepted) == (0, 2)


async def test_problems_without_gold_are_unproven_but_not_wrong():
    result = await preflight([stdin_problem(("", "1"), bad=("2",))], FakeSandbox())
    assert result.passed
    assert result.quarantined == {"fake/1": (UNPROVEN,)}


async def test_public_tests_count_for_gold():
    tests = (Test(input=Stdin(""), expected="2", public=True), Test(input=Stdin(""), expected="1"))
    problem = Problem(id="fake/1", split="train", statement="?", tests=tests, gold=("1",))
    assert not (await preflight([problem], FakeSandbox())).passed


# ── the command ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sandbox(monkeypatch):
    fake = FakeSandbox(answer=run)
    monkeypatch.setattr(options, "embedded_sandbox", lambda *_: fake)
    return fake


def test_what_fails_is_quarantined_to_a_file(tmp_path, sandbox, capsys):
    wrong = doubled("fake/2", gold=("print(1)",))
    write_problems(tmp_path / "p.jsonl", [doubled(), wrong])
    files = ["--quarantine", str(tmp_path / "q.jsonl"), "--passed", str(tmp_path / "ok.jsonl")]
    command = ["data", "preflight", "mine", "--path", str(tmp_path / "p.jsonl"), *files]
    assert cli.main([*command, "--mutants", "3", "--repeats", "2"]) == 1
    captured = capsys.readouterr()
    assert "gold programs accepted: 1/2" in captured.out
    line = json.loads(captured.out.splitlines()[-1])
    assert line["mutants"]["judged"] == line["mutants"]["rejected"] == 3
    assert line["true_positives"]["hits"] == 1
    assert line["flaky"] == []
    (row,) = map(orjson.loads, (tmp_path / "q.jsonl").read_bytes().splitlines())
    assert row["id"] == "fake/2"
    assert "gold rejected" in row["reasons"][0]
    assert row["problem"]["gold"] == ["print(1)"]
    assert [problem.id for problem in read_problems(tmp_path / "ok.jsonl")] == ["fake/1"]


@pytest.mark.parametrize(
    ("comparison", "reason"),
    [("fuzzy", "unusable: comparison='fuzzy': expected tokens"), ("lines", "do not compile")],
)
def test_solutions_that_cannot_be_judged_are_not_missing(
    tmp_path, monkeypatch, capsys, comparison, reason
):
    def refuse(*_):
        raise DataError("the tests do not compile")

    sandbox = FakeSandbox(answer=refuse)
    monkeypatch.setattr(options, "embedded_sandbox", lambda *_: sandbox)
    problem = stdin_problem(("", "1"), gold=("print(1)",), comparison=comparison)
    write_problems(tmp_path / "p.jsonl", [problem])
    command = ["data", "preflight", f"mine={tmp_path / 'p.jsonl'}"]
    for more in ([], ["--json"]):
        assert cli.main([*command, *more]) == 1
        said = capsys.readouterr().err
        assert "mine: no solution could be judged: nothing is shown of its tests; the first" in said
        assert reason in said
        assert "ships no solutions" not in said


def test_published_sets_by_name(tmp_path, sandbox, capsys):
    (tmp_path / "test.jsonl").write_text(json.dumps(published.LIVECODEBENCH_STDIN) + "\n")
    command = ["data", "preflight", "livecodebench", "--path", str(tmp_path / "test.jsonl")]
    assert cli.main(command) == 1, "it ships no solutions, so nothing is shown"
    assert "nothing is shown" in capsys.readouterr().err
    aside = {**published.CODECONTESTS, "description": "<image>"}
    rows = [published.CODECONTESTS, aside]
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["data", "preflight", "codecontests_valid", "--path", str(tmp_path / "v.jsonl")]
    assert cli.main(command) == 0
    captured = capsys.readouterr()
    assert "1 rows set aside, 1 used" in captured.out
    line = json.loads(captured.out.splitlines()[-1])
    assert line["set_aside"] == 1
    assert (line["gold_accepted"], line["bad_total"], line["bad_rejected"]) == (1, 1, 1)


def test_an_answer_that_was_compared_with_its_own_solution_shows_nothing(tmp_path, sandbox, capsys):
    (tmp_path / "r.jsonl").write_text(json.dumps(published.GSM8K) + "\n")
    assert cli.main(["data", "preflight", "gsm8k_test", "--path", str(tmp_path / "r.jsonl")]) == 1
    assert sandbox.calls == []
    captured = capsys.readouterr()
    assert "1 maths problems not counted" in captured.out
    line = json.loads(captured.out.splitlines()[-1])
    assert (line["gold_accepted"], line["compared_with_itself"]) == (0, 1)
    assert "nothing is shown" in captured.err


def test_a_maths_answer_that_its_solution_contradicts_is_named(tmp_path, sandbox, capsys):
    row = {
        "id": "mine/1",
        "split": "train",
        "statement": "How many?",
        "grader": "math",
        "answer": "7",
        "gold": ["I count 8.\n#### 8"],
    }
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n")
    assert cli.main(["data", "preflight", "mine", "--path", str(tmp_path / "r.jsonl")]) == 1
    assert "mine/1: gold rejected" in capsys.readouterr().err


FAULTY = CASES["faulty"]


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_that_shows_without_running_is_named_and_counted(tmp_path, sandbox, capsys, fault):
    row = {
        "id": "fake/1",
        "split": "train",
        "statement": "?",
        "tests": [{"stdin": "4", "expected": "8"}],
        "gold": ["print(int(input()) * 2)"],
    }
    faulty = {**row, "id": "fake/2", **FAULTY[fault]}
    path, unfit, fit = tmp_path / "p.jsonl", tmp_path / "q.jsonl", tmp_path / "ok.jsonl"
    path.write_text(f"{json.dumps(row)}\n{json.dumps(faulty)}\n")
    command = ["data", "preflight", "mine", "--path", str(path), "--passed", str(fit)]
    assert cli.main([*command, "--quarantine", str(unfit)]) == 1
    captured = capsys.readouterr()
    twice = fault == "duplicate id"
    assert f"{1 + twice} problems not judged: {fault}" in captured.out
    assert f"{faulty['id']}: {fault}: " in captured.err
    line = json.loads(captured.out.splitlines()[-1])
    assert list(line)[:6] == [
        "dataset", "problems", "gold_accepted", "bad_total", "bad_rejected", "seconds",
    ]  # fmt: skip
    assert (line["problems"], line["gold_accepted"]) == (2, 1 - twice)
    assert line["faults"] == {fault: 1 + twice}
    assert len(unfit.read_text().splitlines()) == 1 + twice
    assert len(read_problems(fit)) == 1 - twice


def problems(n=30):
    """Good ones, one whose gold fails, one without gold, and two of one id."""
    made = [
        stdin_problem(("4", "8"), ("3", "0"), id=f"toy/{i}", gold=(GOLD,), bad=("print(1)",))
        for i in range(n)
    ]
    made[3] = replace(made[3], gold=("print(7)",))
    made[4] = replace(made[4], gold=())
    made[20] = replace(made[20], id="toy/1")
    return made


@pytest.fixture
def next_sandbox(tmp_path, monkeypatch):
    """The fake that the next command judges by."""
    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))

    def use(**given):
        fake = FakeSandbox(answer=run, **given)
        monkeypatch.setattr(options, "embedded_sandbox", lambda *_: fake)
        return fake

    return use


def test_a_journal_holds_all_that_was_found(tmp_path, next_sandbox):
    made = problems()
    whole = asyncio.run(preflight(made, FakeSandbox(answer=run), mutants_per_problem=2))
    assert whole.quarantined.keys() == {"toy/1", "toy/3", "toy/4"}
    assert whole.mutation.problems == 26
    where = Resumable(journal=tmp_path / "kept.jsonl")
    for n_calls in (True, False):
        fake = next_sandbox()
        found = asyncio.run(
            data_checks.run_preflight(made, SandboxConfig(), where, lambda *_: None, mutants=2)
        )
        assert found == whole
        assert bool(fake.calls) is n_calls


async def test_a_failure_costs_its_problem_and_an_outage_ends_soon():
    asked = []

    async def once(problem, found):
        asked.append(problem.id)
        if problem.id == "toy/2":
            raise SandboxError("a hiccup")
        return Preflight(problems=1)

    with pytest.raises(SandboxError, match=r"1 of 30 problems could not be checked \(a hiccup\)"):
        await check_all(problems(), once)
    assert len(asked) == 30
    asked.clear()

    async def down(problem, found):
        asked.append(problem)
        raise SandboxError("down")

    with pytest.raises(SandboxError, match="30 of 30"):
        await check_all(problems(), down, at_once=1)
    assert len(asked) == 3


def test_the_command_resumes_from_its_journal(tmp_path, next_sandbox, capsys):
    made = [one for one in problems() if one.id not in ("toy/1", "toy/3", "toy/4")]
    write_problems(tmp_path / "p.jsonl", made)
    command = ["data", "preflight", "mine", "--path", str(tmp_path / "p.jsonl"), "--json"]
    kept = ["--journal", str(tmp_path / "kept.jsonl")]
    next_sandbox()
    assert cli.main(command) == 0
    whole = orjson.loads(capsys.readouterr().out.splitlines()[-1])
    next_sandbox(failures=1)
    assert cli.main([*command, *kept]) == 3
    assert "repeat the command with --journal FILE" in capsys.readouterr().err
    fake = next_sandbox()
    assert cli.main([*command, *kept]) == 0
    captured = capsys.readouterr()
    assert "resuming with 25 results" in captured.err
    assert len(fake.calls) == 3, "the problem that failed: gold, bad and idle"
    assert orjson.loads(captured.out.splitlines()[-1]) | {"seconds": 0} == whole | {"seconds": 0}
