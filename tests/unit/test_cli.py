"""Commands answer at once, fail in one line, and exit as documented."""

import json
import os
import subprocess
import sys

import pytest

import coding_model_project.cli as cli
from coding_model_project.cli import common
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import SandboxError
from coding_model_project.types import Execution, Status
from tests.fakes import FakeSandbox, stdin_problem

HELP = [
    [],
    ["grade"],
    ["sandbox"],
    ["sandbox", "check"],
    ["sandbox", "run"],
    ["sandbox", "bench"],
    ["data"],
    ["data", "prepare"],
    ["data", "preflight"],
    ["runs"],
    ["runs", "show"],
    ["runs", "watch"],
    ["runs", "rerun"],
    ["report"],
    ["eval", "compare"],
    ["watch"],
    ["data", "select-tests"],
    ["doctor"],
    ["config"],
]
PROBLEMS = [
    stdin_problem(("", "1"), id="fake/1", gold=("1",), bad=("2", "3")),
    stdin_problem(("", "2"), id="fake/2", gold=("2",)),
]


@pytest.fixture
def sandbox(monkeypatch):
    """A fake in the embedded sandbox's place."""
    fake = FakeSandbox()
    for module in (cli.grade, cli.data, cli.sandbox):
        monkeypatch.setattr(module, "embedded_sandbox", lambda *_: fake)
    return fake


@pytest.fixture
def files(tmp_path):
    write_problems(tmp_path / "p.jsonl", PROBLEMS)
    rows = [("fake/2", "2"), ("fake/1", "2"), ("fake/1", "1"), ("fake/1", " "), ("fake/1", "1")]
    lines = [json.dumps({"problem_id": p, "completion": c}) for p, c in rows]
    (tmp_path / "c.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def grade(folder, *more):
    options = ["--problems", "p.jsonl", "--completions", "c.jsonl", "--out", "v.jsonl"]
    paths = [str(folder / o) if o.endswith("jsonl") else o for o in options]
    return cli.main(["grade", *paths, "--bare", *more])


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help(command, capsys):
    assert cli.main([*command, "--help"]) == 0
    assert "Usage:" in capsys.readouterr().out


@pytest.mark.parametrize("program", ["coding_model_project", "recipes.sft"])
def test_a_reader_that_has_seen_enough_ends_it_without_a_word(program):
    """As `--help | head -3` does; the recipe's page is in Python's buffer until the end."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", program, "--help"]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_help_imports_nothing_heavy():
    heavy = "torch numpy pyarrow verl ray vllm hydra scipy"
    code = (
        "import sys; from coding_model_project import cli; cli.main(['sandbox', 'run', '--help']);"
        f"sys.exit(','.join(m for m in '{heavy}'.split() if m in sys.modules) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()[-300:]


def test_grade_writes_verdicts_in_order(files, sandbox, capsys):
    assert grade(files) == 0
    rows = [json.loads(line) for line in (files / "v.jsonl").read_text().splitlines()]
    assert [row["problem_id"] for row in rows] == ["fake/2", *["fake/1"] * 4]
    assert [row["passed"] for row in rows] == [True, False, True, False, True]
    assert [row["error"] for row in rows] == [None, "wrong_answer", None, "no_code", None]
    assert rows[4]["cached"]
    assert "5 judged, 60.0% accepted, 0 ungradable" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.jsonl", "", "p.jsonl is empty"),
        ("p.jsonl", "[1]\n", "p.jsonl:1: not a JSON object"),
        ("c.jsonl", '{"problem_id": ["x"], "completion": ""}', "c.jsonl:1: problem_id: ['x']"),
        ("c.jsonl", '{"problem_id": "fake/1", "completion": "\\ud800"}', "c.jsonl:1: not JSON"),
        ("v.jsonl/x", "", "v.jsonl: this is a folder"),
    ],
)
def test_what_cannot_be_graded_is_one_line(files, sandbox, capsys, name, content, says):
    (files / name).parent.mkdir(exist_ok=True)
    (files / name).write_text(content)
    assert grade(files) == 2
    assert says in capsys.readouterr().err.strip().splitlines()[-1]
    assert sandbox.calls == []


def test_an_outage_is_exit_3_and_no_verdict(files, sandbox):
    sandbox.failures = 1
    assert grade(files) == 3
    rows = [json.loads(line) for line in (files / "v.jsonl").read_text().splitlines()]
    (lost,) = [row for row in rows if "ungradable" in row]
    assert lost["ungradable"]["type"] == "SandboxError"
    assert "passed" not in lost


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["grade"], "--problems"),
        (["grade", "--problems", "/nowhere", "--completions", "x", "--out", "y"], "/nowhere"),
        (["grade", "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        (["sandbox", "check", "--min-tier", "steel"], "rlimit, seccomp, namespaces"),
        (["sandbox", "run", "/nowhere.py"], "/nowhere.py"),
        (["data", "prepare", "mbpp"], "tinycode"),
        (["data", "preflight", "mbpp"], "--path"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments, says, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1
    assert says in error


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"problem_id": "fake/1"}', '{"problem_id": "x", "completion": ""}']
)
def test_a_bad_completion_is_named_by_its_line(files, sandbox, line, capsys):
    with (files / "c.jsonl").open("a") as file:
        file.write(line + "\n")
    assert grade(files) == 2
    assert "c.jsonl:6" in capsys.readouterr().err


def test_a_traceback_only_with_debug(files, sandbox, monkeypatch):
    def fail(*_):
        raise SandboxError("down\nfor good")

    monkeypatch.setattr(cli.grade, "embedded_sandbox", fail)
    assert grade(files) == 3
    with pytest.raises(SandboxError):
        grade(files, "--debug")


def test_interrupted_is_130(files, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.grade, "embedded_sandbox", interrupt)
    assert grade(files) == 130


def preflight(folder, capsys):
    code = cli.main(["data", "preflight", "mine", "--path", str(folder / "p.jsonl"), "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_preflight_counts(files, sandbox, capsys):
    code, line = preflight(files, capsys)
    assert code == 0
    assert line.pop("seconds") >= 0
    assert line == {
        "dataset": "mine",
        "problems": 2,
        "gold_accepted": 2,
        "bad_total": 2,
        "bad_rejected": 2,
    }


@pytest.mark.parametrize(("gold", "bad", "counts"), [("x", "2", (0, 1)), ("1", "1", (1, 0))])
def test_preflight_fails_on_bad_gold_or_accepted_bad(files, sandbox, capsys, gold, bad, counts):
    problem = stdin_problem(("", "1"), gold=(gold,), bad=(bad,))
    write_problems(files / "p.jsonl", [problem])
    code, line = preflight(files, capsys)
    assert code == 1
    assert (line["gold_accepted"], line["bad_rejected"]) == counts


def test_run_prints_what_the_program_printed(tmp_path, sandbox, capsys):
    (tmp_path / "a.py").write_text("hello")
    assert cli.main(["sandbox", "run", str(tmp_path / "a.py")]) == 0
    captured = capsys.readouterr()
    assert captured.out == "hello"
    assert "finished" in captured.err
    sandbox.answer = lambda *_: Execution(status=Status.raised, stderr_tail="oh", exit_code=1)
    assert cli.main(["sandbox", "run", str(tmp_path / "a.py")]) == 1


def test_options_reach_the_sandbox():
    assert common.embedded_sandbox(1, "rlimit") is not None


@pytest.mark.sandbox
def test_check_and_run_for_real(tmp_path, capsys):
    assert cli.main(["sandbox", "check"]) == 0
    assert "tier: " in capsys.readouterr().out
    (tmp_path / "a.py").write_text("print(input()[::-1])")
    assert cli.main(["sandbox", "run", str(tmp_path / "a.py"), "--stdin", "abc"]) == 0
    assert capsys.readouterr().out == "cba\n"
    assert cli.main(["sandbox", "bench", "--json", "--rounds", "1"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(line) == {"tier", "embedded", "subprocess"}
    assert line["embedded"]["tests_per_s"] > 0
