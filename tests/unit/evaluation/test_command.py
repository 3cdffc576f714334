"""`src/phase0_eval.py` as a program: killed, on a full disk, asked wrongly. A toy server generates."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.types import Call, Problem, Test
from tests.completion_server import CompletionServer, serving
from tests.processes import ran
from tests.text_cases import sources

SOURCES = sources(__file__)

SCRIPT = Path(__file__).parents[3] / "src" / "phase0_eval.py"
N_PROBLEMS, N_SAMPLES = 20, 4
HEAVY = {"torch", "verl", "ray", "vllm", "transformers", "omegaconf", "numpy"}


@pytest.fixture
def problems(tmp_path):
    def problem(number):
        tests = tuple(
            Test(input=Call(function="f", args=(x,)), expected=x + number) for x in (1, 2)
        )
        return Problem(id=f"toy/{number}", split="test", statement=f"add {number}", tests=tests)

    write_problems(tmp_path / "toy.jsonl", [problem(number) for number in range(N_PROBLEMS)])


def answer(prompt, seed):
    """Right for every other seed."""
    number = int(prompt.split()[1]) + seed % 2
    return f"```python\ndef f(x):\n    return x + {number}  # {seed}\n```"


def command(url, out, *more):
    sampling = ["--protocol", "sampled", "--n", str(N_SAMPLES)]
    arguments = ["--model", "toy", "--base-url", url, "--datasets", "toy.jsonl", *sampling]
    return [sys.executable, str(SCRIPT), *arguments, "--out", str(out), *more]


ON_A_SMALL_DISK = SOURCES["on a small disk"]


@pytest.mark.sandbox
def test_a_full_disk_is_one_line_and_room_resumes(problems, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    namespace = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c"]
    with serving(CompletionServer(lambda *a: answer(*a) + "x" * 100_000)) as server:
        result = ran(
            [*namespace, ON_A_SMALL_DISK, str(run), *command(server.url, run)], cwd=tmp_path
        )
    code, said, code_after, n_lines, n_keys = json.loads(result.stdout.splitlines()[-1])
    assert code == 3, said
    assert ".jsonl: cannot be written" in said.splitlines()[-1]
    assert "is full" in said.splitlines()[-1]
    assert code_after == 0
    assert n_lines == n_keys == N_PROBLEMS * N_SAMPLES


@pytest.mark.slow
def test_help_teaches_and_imports_nothing_heavy():
    result = subprocess.run(
        [sys.executable, "-X", "importtime", str(SCRIPT), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--datasets humaneval mbpp_reg codecontests_valid" in result.stdout
    assert "--protocol sampled     EVAL@k" in result.stdout
    lines = result.stderr.splitlines()
    assert not {line.split("|")[-1].strip() for line in lines} & HEAVY


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--datasets", "humanevil"], "humanevil: no such data set"),
        (["--mode", "fast"], "'--mode': 'fast' is not one of 'simple', 'verl'"),
        (["--modle", "x"], "--modle"),
    ],
)
def test_wrong_usage_is_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--model", str(tmp_path), *arguments])
    assert importlib.import_module(SCRIPT.stem).main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not list(tmp_path.glob("outputs/*/run.json"))
