"""`harbor posttrain` writes tasks that can be loaded, and says in a line what it cannot write."""

import json
import tarfile
from itertools import product

import pytest

from coding_model_project.cli import main
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.posttrain.benchmarks import BASE_MODELS, BENCHMARKS
from coding_model_project.synthetic.tinycode import generate
from tests.tables import tables
from tests.unit.harbor.posttrain_models import write_model

CASES = tables("harbor")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tinycode")]  # generated once

ROWS = CASES["rows"]


ONE = ("--benchmark", "tinycode", "--model", "tiny")
TINY = (*ONE, "--num-hours", "0.5", "--limit", "5")


def posttrain(out, *words):
    return main(["harbor", "posttrain", *map(str, words), "--out", str(out)])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def tiny_task(base, tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny") / "tasks"
    assert posttrain(out, *TINY, "--base", base) == 0
    return load_task(out / "posttrainbench-tinycode-tiny")


def test_each_benchmark_and_model_becomes_a_task(base, tmp_path, capsys):
    out, nowhere = tmp_path / "tasks", tmp_path / "nowhere"
    nowhere.mkdir()
    for benchmark, model in product(BENCHMARKS.values(), BASE_MODELS):
        words = ["--benchmark", benchmark.key, "--model", model, "--data-dir", nowhere]
        if benchmark.test in ROWS:
            (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[benchmark.test]) + "\n")
            words += ["--data-file", f"{benchmark.test}={tmp_path}/rows.jsonl"]
        words += ["--base", base] if model == "tiny" else []
        assert posttrain(out, *words) == 0
        name = f"posttrainbench-{benchmark.key}-{model}"
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["task"] == name
        task = load_task(out / name)
        assert not task.warnings
        assert task.steps[0].agent.timeout_sec == 36_000
        assert task.steps[0].verifier_image == out / name / "tests"
        assert task.config.environment.gpus == (None if name.endswith("tiny") else 1)
    assert posttrain(out, *words) == 2
    assert f"{name} exists" in capsys.readouterr().err


def test_the_agent_gets_its_context_and_no_test_problem(tiny_task):
    environment = tiny_task.path / "environment"
    assert "COPY task_context /app/task_context" in (environment / "Dockerfile").read_text()
    tests = [p.statement for p in generate().problems("test")]
    given = (environment / "task_context" / "train.jsonl").read_text()
    statements = {json.loads(line)["statement"] for line in given.splitlines()}
    assert len(statements) > 1_000
    assert not statements & set(tests)
    with tarfile.open(environment / "package.tar.gz") as archive:
        names = archive.getnames()
    assert "coding_model_project/harbor/posttrain/scoring.py" in names
    assert not [name for name in names if "/tinycode/" in name]  # which could make the tests


@pytest.mark.parametrize("name", ["gsm8k", "ifeval", "mbpp"])
def test_the_instruction_asks_for_what_works(name, tmp_path):
    """Its command scores on problems that are there, or else takes those that the agent brings."""
    nowhere, words = tmp_path / "nowhere", ["--benchmark", name, "--model", "qwen3-1.7b"]
    nowhere.mkdir()
    test = next(one for one in ROWS if one.startswith(name))
    rows = {test: [ROWS[test]]}
    if name == "gsm8k":
        rows["gsm8k_train"] = [
            {"question": f"What is {n} and {n}?", "answer": f"#### {2 * n}"} for n in range(30)
        ]
    if name == "mbpp":  # one file has all splits, by the rows' numbers
        rows = {"mbpp": [{**ROWS[test], "task_id": n} for n in (11, 520, 601, 602)]}
    for key, given in rows.items():
        path = tmp_path / f"{key}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in given))
        words += ["--data-file", f"{key}={path}"]
    assert posttrain(tmp_path / "tasks", *words, "--data-dir", nowhere) == 0
    (task,) = (tmp_path / "tasks").iterdir()
    instruction = (task / "instruction.md").read_text()
    context = task / "environment" / "task_context"
    if name == "ifeval":
        assert "evaluate.py --problems FILE --model-path final_model" in instruction
        assert "`instructions`" in (context / "README.md").read_text()
        return
    assert "evaluate.py --model-path final_model --limit 50" in instruction
    parts = [
        {json.loads(line)["statement"] for line in (context / part).read_text().splitlines()}
        for part in ("train.jsonl", "validation.jsonl")
    ]
    assert all(parts) and (name == "mbpp" or not parts[0] & parts[1])
    assert [*map(len, parts)] == ([27, 3] if name == "gsm8k" else [1, 1])


def test_the_clock_starts_with_the_agent(tiny_task):
    config = tiny_task.config
    assert "started_at" in config.environment.healthcheck.command
    assert "ended_at" in config.verifier.collect[0].command
    assert "started_at" not in (tiny_task.path / "environment" / "Dockerfile").read_text()
    assert "1800" in (tiny_task.path / "environment" / "timer.sh").read_text()


def test_the_same_input_gives_the_same_bytes(tiny_task, base, tmp_path):
    assert posttrain(tmp_path / "again", *TINY, "--base", base) == 0
    found, again = (
        {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        for root in (tiny_task.path, tmp_path / "again" / "posttrainbench-tinycode-tiny")
    )
    assert found.keys() == again.keys()
    assert [name for name in found if found[name] != again[name]] == []


@pytest.mark.parametrize(("words", "said"), CASES["bad_input_is_one_line"])
def test_bad_input_is_one_line(words, said, tmp_path, capsys, monkeypatch, base):
    monkeypatch.chdir(tmp_path)
    given = words if "--base" in words else (*words, "--base", base)
    assert posttrain("out", *given) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
    assert not (tmp_path / "out").exists()


def test_a_base_model_with_code_is_not_used(tmp_path, capsys):
    folder = write_model(tmp_path / "base")
    (folder / "modeling.py").write_text("import os")
    assert posttrain(tmp_path / "out", *ONE, "--base", folder) == 2
    assert "modeling.py" in capsys.readouterr().err
