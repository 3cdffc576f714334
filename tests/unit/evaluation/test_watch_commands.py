"""`watch` with commands of other tools: their numbers become points, and nothing of ours leaks in."""

import json
import os
import sys

import psutil
import pytest

from coding_model_project.errors import CheckpointError
from coding_model_project.evaluation.watch import Curve, Plan, view, watch
from coding_model_project.evaluation.watch.curve import CURVE, Measure
from coding_model_project.reports.chart_lines import RunTally, chart_lines
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import read_metrics
from tests.processes import ended
from tests.synthetic_checkpoints import checkpoint
from tests.synthetic_runs import write_run
from tests.tables import tables
from tests.text_cases import sources
from tests.waiting import wait_for

CASES = tables("evaluation")

SOURCES = sources(__file__)

pytestmark = pytest.mark.slow

TOOL = SOURCES["tool"]

LM_EVAL = CASES["lm eval"]
OLMES = {"alias": "toy:rc", "metrics": {"primary_score": 0.3, "acc_raw": 0.2}, "num_instances": 40}
OLDER_OLMES = {"task": "toy", "primary_score": 0.3, "acc_raw": 0.2, "num_instances": 40}
WITH_ERROR = Measure(value=0.25, low=0.25 - 1.96 * 0.05, high=0.25 + 1.96 * 0.05)


def plan(folder, **changes):
    (folder / "tool.py").write_text(TOOL)
    command = f"env {sys.executable} {folder / 'tool.py'} {{model}} {{out}} {{step}}"
    fields = {
        "patterns": (str(folder / "runs" / "*"),),
        "out": folder / "watch",
        "command": command,
    }
    return Plan(**fields | {"every_s": 0.05, "once": True} | changes)


@pytest.mark.parametrize(
    ("files", "protocol", "measures"),
    [
        (
            {
                "model/results_2026-01-01T00-00-00.json": {"results": {"toy": {"acc,none": 0.9}}},
                "model/results_2026-01-02T00-00-00.json": LM_EVAL,
            },
            "lm-eval",
            {"toy/acc": WITH_ERROR, "toy/exact_match,strict-match": Measure(value=0.5)},
        ),
        (
            {"metrics.json": {"all_primary_scores": [], "tasks": [OLMES]}, "task-0.json": {}},
            "olmes",
            {"toy:rc": Measure(value=0.3)},
        ),
        ({"metrics.json": {"metrics": [OLDER_OLMES]}}, "olmes", {"toy": Measure(value=0.3)}),
        (
            {"mine.json": {"loss": 12.5, "acc": 0.25, "acc_stderr": 0.05}},
            "command",
            {"loss": Measure(value=12.5), "acc": WITH_ERROR},
        ),
    ],
    ids=["lm-eval, twice", "OLMES", "older OLMES", "numbers by name"],
)
def test_the_numbers_of_a_tool_become_a_point(files, protocol, measures, tmp_path):
    checkpoint(tmp_path / "runs" / "grpo", 4, files=files)
    (point,) = watch(plan(tmp_path), lambda _: None).points
    assert (point.step, point.protocol, point.is_ours) == (4, protocol, False)
    assert point.measures == measures
    assert Curve(tmp_path / "watch").points == [point], "it is read back as it was"


def test_the_curve_and_the_report_show_them_with_their_intervals(tmp_path, capsys):
    from rich.console import Console

    run = RunFolder(write_run(tmp_path / "runs" / "grpo", exit_code=0))
    for step, value in ((1, 0.25), (2, 0.5)):
        numbers = {"loss": 1 / value, "acc": value, "acc_stderr": 0.05}
        checkpoint(run.path, step, files={"mine.json": numbers})
    said = []
    curve = watch(plan(tmp_path), said.append)
    assert "grpo step 1: loss 4, acc 0.25 (0.152 to 0.348)" in said[0]
    Console().print(view(curve))
    assert "▁█  0.25 → 0.5" in capsys.readouterr().out
    loss, acc = chart_lines(RunTally(), {}, read_metrics(run.evaluations))["measures"]
    assert (loss.label, loss.values, loss.low) == ("loss (command)", [4, 2], None)
    assert (acc.label, acc.steps, acc.values) == ("acc (command)", [1, 2], [0.25, 0.5])
    assert acc.low[0] == pytest.approx(0.152)


def test_a_tool_has_the_environment_of_its_own_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours/.venv")
    monkeypatch.setenv("HF_HOME", "/theirs")
    files = {"mine.json": {"acc": 1}}
    checkpoint(tmp_path / "runs" / "grpo", 4, files=files)
    watch(plan(tmp_path, devices=("2",)), lambda _: None)
    theirs = environment(tmp_path, 4)
    assert not {"PYTHONPATH", "VIRTUAL_ENV"} & set(theirs)
    assert (theirs["HF_HOME"], theirs["CUDA_VISIBLE_DEVICES"]) == ("/theirs", "2")
    assert os.environ["PYTHONPATH"] == "/ours"

    command = plan(tmp_path).command.replace(f"env {sys.executable}", "{python}")
    watch(plan(tmp_path, command=command, out=tmp_path / "ours"), lambda _: None)
    assert environment(tmp_path, 4, "ours")["PYTHONPATH"] == "/ours"


def environment(folder, step, out="watch"):
    return json.loads((folder / out / f"environment_{step}.txt").read_text())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "wrote 0 .json files"),
        ({"a.json": {"acc": 1}, "b.json": {"acc": 1}}, "wrote 2 .json files"),
        ({"mine.json": {"acc": "high"}}, "acc is not a finite number"),
        ({"mine.json": {"acc": float("nan")}}, "acc is not a finite number"),
        ({"mine.json": [0.5]}, "not results of command"),
        ({"results_1.json": {"results": {"toy": {"acc,none": "N/A"}}}}, "no numbers"),
        ({"metrics.json": {"tasks": [{"alias": "toy"}]}}, "not results of olmes"),
    ],
)
def test_what_is_no_result_is_a_failure_and_tried_again_later(files, said, tmp_path):
    checkpoint(tmp_path / "runs" / "grpo", 4, files=files)
    with pytest.raises(CheckpointError, match=said):
        watch(plan(tmp_path), lambda _: None)
    assert not (tmp_path / "watch" / CURVE).exists()
    (held,) = (tmp_path / "watch").glob("*.model")
    (folder,) = (one for one in (tmp_path / "watch").glob("grpo_*") if one.suffix == "")
    for file in folder.glob("*.json"):
        file.unlink()
    content = {"step": 4, "files": {"mine.json": {"acc": 1}}}
    (held / "config.json").write_text(json.dumps(content))
    assert [one.step for one in watch(plan(tmp_path), lambda _: None).points] == [4]


def test_a_set_for_final_numbers_is_named(tmp_path):
    files = {"results_1.json": {"results": {"humaneval": {"pass@1,create_test": 0.5}}}}
    checkpoint(tmp_path / "runs" / "grpo", 4, files=files)
    said = []
    watch(plan(tmp_path), said.append)
    assert said[0].startswith("note: humaneval is a test set for final numbers")
    assert "humaneval/pass@1,create_test 0.5" in said[1]


def test_what_a_command_leaves_running_ends_with_it(tmp_path):
    script = tmp_path / "leaves.py"
    script.write_text(
        "import json, subprocess, sys\n"
        "from pathlib import Path\n"
        "server = subprocess.Popen(['sleep', '600'])\n"
        "(Path(sys.argv[2]) / 'mine.json').write_text(json.dumps({'pid': server.pid}))\n"
    )
    checkpoint(tmp_path / "runs" / "grpo", 4)
    command = f"{{python}} {script} {{model}} {{out}}"
    (point,) = watch(plan(tmp_path, command=command), lambda _: None).points
    pid = int(point.measures["pid"].value)
    wait_for(lambda: not psutil.pid_exists(pid) or ended(psutil.Process(pid)))
