"""One evaluation through three doors, of a toy server's model: `eval run`, the recipe and the script."""

import json
import os
from importlib import metadata
from pathlib import Path

import pytest

import coding_model_project.cli as cli
from coding_model_project.data.problems import write_problems
from coding_model_project.types import Call, Problem, Test
from tests import fresh
from tests.completion_server import CompletionServer, serving
from tests.processes import ran
from tests.tables import tables

ROOT = Path(__file__).parents[3]
RUN = ["-m", "coding_model_project", "eval", "run"]
ABSENT = ("verl", "vllm", "torch", "ray", "transformers")
"""Packages that only a training installation has."""


@pytest.fixture
def problems(tmp_path):
    tests = (Test(input=Call(function="double", args=(2,)), expected=4),)
    statement = "Define double(x)."
    problem = Problem(id="toy/1", split="test", statement=statement, tests=tests)
    write_problems(tmp_path / "toy.jsonl", [problem])
    return "toy.jsonl"


def answer(prompt, seed):
    return "```python\ndef double(x):\n    return x + x\n```"


def base_install(folder):
    """An environment in which what trains cannot be imported."""
    (folder / "absent").mkdir()
    for name in ABSENT:
        (folder / "absent" / f"{name}.py").write_text(f'raise ImportError("{name} is absent")\n')
    return os.environ | {"PYTHONPATH": f"{folder / 'absent'}{os.pathsep}{ROOT}", "COLUMNS": "200"}


def program(arguments, folder, environment=None):
    return ran(
        [fresh.python(), *map(str, arguments)],
        cwd=folder,
        env=environment or os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        timeout=100,
    )


def protocol(folder):
    return json.loads((folder / "run_info.json").read_text())["protocol"]


@pytest.mark.sandbox
def test_three_doors_lead_to_one_evaluation(problems, tmp_path):
    environment = base_install(tmp_path)
    with serving(CompletionServer(answer)) as server:
        options = ["--model", "toy", "--base-url", server.url]
        keys = {"model": "toy", "base_url": server.url, "datasets": f"[{problems}]"}
        doors = {
            "run": [*RUN, *options, "--dataset", problems, "--out", "run"],
            "script": [
                *(ROOT / "src" / "phase0_eval.py", "--mode", "simple", *options),
                *("--datasets", problems, "--out", "script"),
            ],
            "recipe": [
                *("-m", "recipes.baseline", "hardware=cpu", "coding.run_dir=recipe"),
                *(f"coding.evaluation.{key}={value}" for key, value in keys.items()),
            ],
        }
        done = {
            name: program(command, tmp_path, None if name == "recipe" else environment)
            for name, command in doors.items()
        }
    for name, one in done.items():
        assert one.returncode == 0, f"{name}: {one.stderr}"
        said = one.stdout + one.stderr
        assert "temperature=0 prompt=fenced max_tokens=2048" in said
        assert "HTTP Request" not in said
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())
        assert metrics["toy"]["pass@k"]["1"]["value"] == 1
        assert protocol(tmp_path / name) == protocol(tmp_path / "run")
    assert len(server.asked) == 3
    assert all(asked == server.asked[0] for asked in server.asked)
    assert "```python" in server.asked[0]["messages"][0]["content"]


@pytest.mark.sandbox
def test_what_hosted_models_want_is_sent_and_recorded(problems, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", "secret")
    body = {"reasoning_effort": "low", "temperature": None}
    with serving(CompletionServer(answer, key="secret")) as server:
        command = [
            *("eval", "run", "--model", "toy", "--base-url", server.url, "--dataset", problems),
            *("--out", "run", "--system-prompt", "Be brief.", "--extra-body", json.dumps(body)),
            *("--token-limit-field", "max_completion_tokens", "--api-key-env", "MY_KEY"),
        ]
        assert cli.main(command) == 0
        changed = [*command, "--workers", "3"]
        assert cli.main(changed) == 2
        assert "--force" in capsys.readouterr().err
        assert cli.main([*changed, "--force"]) == 0
    (asked,) = server.asked  # what is there is not asked for again
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (asked["max_completion_tokens"], asked["reasoning_effort"]) == (2048, "low")
    assert not {"max_tokens", "temperature"} & set(asked)
    recorded = protocol(tmp_path / "run")
    assert (recorded["system_prompt"], recorded["extra_body"]) == ("Be brief.", body)
    assert "Be brief." in (tmp_path / "run" / "qa_logs" / "toy.md").read_text()
    assert "secret" not in (tmp_path / "run" / "config.yaml").read_text()


MODEL = ["--model", "."]
SET = ["--dataset", "toy.jsonl"]
SERVER = [*MODEL, *SET, "--base-url", "http://localhost:9/v1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    tables("cli")["wrong evaluations"],
)
def test_wrong_usage_is_one_line(arguments, says, problems, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["eval", "run", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert "--path" not in line  # which other commands have
    assert not list(tmp_path.glob("outputs/eval/*/run.json"))


def test_an_engine_that_is_not_installed_is_named(problems, tmp_path, monkeypatch, capsys):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "version", version)
    (tmp_path / "config.json").write_text("{}")
    assert cli.main(["eval", "run", *MODEL, *SET, "--out", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "vLLM is not installed" in line
    assert "--base-url" in line
    assert not (tmp_path / "run" / "run.json").exists()
