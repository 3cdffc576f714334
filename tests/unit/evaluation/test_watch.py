"""`watch`: every checkpoint that is whole is evaluated once, whatever happens in between."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coding_model_project.cli import main
from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.evaluation.watch import Plan, watch, watcher
from coding_model_project.reports import write_report
from coding_model_project.reports.chart_lines import RunTally, chart_lines
from coding_model_project.runs.checkpoints import MANIFEST, TRACKER, write_manifest
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import read_metrics
from tests.processes import ended
from tests.synthetic_checkpoints import checkpoint
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import write_run
from tests.tables import tables
from tests.text_cases import sources
from tests.waiting import wait_for

CASES = tables("evaluation")

SOURCES = sources(__file__)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EVALUATE = SOURCES["evaluate"]


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    """Write evaluations in which step N solves N of 20 problems, without importing our package."""
    folder = tmp_path_factory.mktemp("evaluations")
    for step in range(21):
        write_evaluation(folder / str(step), {f"p/{i}": [i < step] for i in range(20)})
    return folder


@pytest.fixture
def place(tmp_path, evaluations):
    (tmp_path / "evaluate.py").write_text(EVALUATE)
    (tmp_path / "evaluations").symlink_to(evaluations)
    return tmp_path


def plan(place, *patterns, **changes):
    command = f"{{python}} {place / 'evaluate.py'} {{model}} {{out}}"
    return Plan(
        patterns=patterns or (str(place / "runs" / "*"),),
        **{"out": place / "watch", "command": command, "every_s": 0.05, "once": True} | changes,
    )


def calls(place):
    return [
        tuple(line.split()) for line in (place / "watch" / "calls.txt").read_text().splitlines()
    ]


def test_each_whole_checkpoint_is_evaluated_once(place):
    run = place / "runs" / "grpo"
    for step in (4, 12):
        checkpoint(run, step)
    checkpoint(run, 16, whole=False)  # verl is still writing it
    (checkpoint(run, 20) / MANIFEST).write_text("{")
    (run / "checkpoints" / "global_step_2").mkdir()  # what retention leaves
    theirs = place / "runs" / "verl"  # without our manifests: verl's tracker tells
    for step in (5, 6):
        checkpoint(theirs, step, whole=False, within="huggingface")
    (theirs / "checkpoints" / TRACKER).write_text("5")
    said = []
    curve = watch(plan(place), said.append)
    scores = [(Path(p.run).name, p.step, p.measures["toy"].value) for p in curve.points]
    assert scores == [("grpo", 4, 0.2), ("grpo", 12, 0.6), ("verl", 5, 0.25)]
    score = curve.points[1].measures["toy"]
    assert score.low < 0.6 < score.high
    assert len(said) == 3
    assert not list((place / "watch").glob("*.model"))

    assert len(watch(plan(place), said.append).points) == 3
    assert len(said) == 3, "nothing was evaluated again"
    write_manifest(run / "checkpoints" / "global_step_16")
    assert len(watch(plan(place), said.append).points) == 4
    assert [call[2] for call in calls(place) if call[0] == "16"] == ["start", "end"]


def test_checkpoints_are_found_as_they_appear_until_the_training_ends(place):
    run = RunFolder(write_run(place / "runs" / "grpo", exit_code=None))
    (attempt,) = run.path.glob("logs/attempt_*/attempt.json")
    running = json.loads(attempt.read_text())
    checkpoint(run.path, 1)

    def say(line):
        if "step 1:" in line:
            checkpoint(run.path, 2)
        elif "step 2:" in line:
            checkpoint(run.path, 3)
            attempt.write_text(json.dumps(running | {"exit_code": 0}))

    curve = watch(plan(place, once=False, until_ended=True), say)
    assert [point.step for point in curve.points] == [1, 2, 3]
    write_report([run], place / "page.html")
    (line,) = chart_lines(RunTally(), {}, read_metrics(run.evaluations))["evaluations"]
    assert (line.label, line.steps, line.values) == ("toy (greedy)", [1, 2, 3], [0.05, 0.1, 0.15])
    assert line.low[2] < 0.15 < line.high[2]


def test_devices_share_the_work_and_each_has_one_at_a_time(place):
    for step in range(1, 7):
        checkpoint(place / "runs" / "grpo", step, seconds=0.2)
    watch(plan(place, devices=("0", "2,3")), lambda _: None)
    on = {device: [c for c in calls(place) if c[1] == device] for device in ("0", "2,3")}
    assert all(len(lines) >= 4 for lines in on.values()), "both were used"
    for lines in on.values():
        assert [line[2] for line in lines] == ["start", "end"] * (len(lines) // 2)


def test_what_retention_deletes_meanwhile_is_evaluated_all_the_same(place):
    run = place / "runs" / "grpo"
    first, second = (checkpoint(run, step) for step in (1, 2))

    def say(_):
        for path in sorted(second.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    assert [p.step for p in watch(plan(place), say).points] == [1, 2]
    assert first.exists()


def test_a_failure_is_tried_again_and_then_told_and_the_others_go_on(place):
    run = place / "runs" / "grpo"
    checkpoint(run, 1, exit=3)
    checkpoint(run, 2)
    with pytest.raises(CheckpointError, match=r"1 checkpoints.*exit code 3: out of memory"):
        watch(plan(place), lambda _: None)
    assert [call[0] for call in calls(place) if call[2] == "start"] == ["1", "2", "1"]
    (held,) = (place / "watch").glob("*.model")
    (held / "config.json").write_text('{"step": 1}')  # the machine is in order again
    assert [p.step for p in watch(plan(place), lambda _: None).points] == [1, 2]


def test_a_wrong_command_ends_the_watch_at_once(place):
    for step in (1, 2):
        checkpoint(place / "runs" / "grpo", step, exit=2)
    with pytest.raises(ConfigError, match="exit code 2"):
        watch(plan(place), lambda _: None)
    assert len(calls(place)) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_watch_that_is_stopped_goes_on_where_it_was(place, how):
    run = place / "runs" / "grpo"
    for step in (1, 2):
        checkpoint(run, step, seconds=0 if step == 1 else 60, helper=step == 2)
    words = ["watch", str(run), "--once", "--out", str(place / "watch")]
    words += ["--command", plan(place).command]
    process = subprocess.Popen(
        [sys.executable, "-m", "coding_model_project", *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell that starts tests in the background has them, and all below, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(lambda: len(calls(place)) == 3 if (place / "watch/calls.txt").exists() else False)
    helper = place / "watch" / "helper.txt"
    wait_for(lambda: helper.exists() and helper.read_text().endswith("\n"))
    started = [*psutil.Process(process.pid).children(), psutil.Process(int(helper.read_text()))]
    process.send_signal(how)
    process.wait(120)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    wait_for(lambda: all(map(ended, started)))
    (held,) = (place / "watch").glob("*.model")
    (held / "config.json").write_text('{"step": 2}')  # now it takes no minute
    shutil.rmtree(run / "checkpoints" / "global_step_2")  # retention, while nobody watched
    assert [p.step for p in watch(plan(place, str(run)), lambda _: None).points] == [1, 2]
    assert not list((place / "watch").glob("grpo_*.json"))
    assert [c[0] for c in calls(place) if c[2] == "start"] == ["1", "2", "2"]


def test_shards_are_merged_before_they_are_evaluated(place, monkeypatch):
    actor = place / "runs" / "grpo" / "checkpoints" / "global_step_3" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "huggingface" / "config.json").write_text('{"step": 3}')
    for name in ("model", "optim", "extra_state"):
        (actor / f"{name}_world_size_1_rank_0.pt").write_bytes(b"tensors")
    (actor / "fsdp_config.json").write_text("{}")
    write_manifest(actor.parent)
    seen = []

    def merge(shards, target):
        seen.append(sorted(path.name for path in shards.iterdir()))
        return ["cp", "-r", str(shards / "huggingface"), str(target)]

    monkeypatch.setattr(watcher, "merge_command", merge)
    (point,) = watch(plan(place), lambda _: None).points
    assert point.measures["toy"].value == 0.15
    assert seen == [["fsdp_config.json", "huggingface", "model_world_size_1_rank_0.pt"]]
    assert not list((place / "watch").glob("*.merged"))


@pytest.mark.parametrize(("changes", "said"), CASES["bad input"])
def test_bad_input_is_named(place, changes, said):
    checkpoint(place / "runs" / "grpo", 1)
    watch(plan(place), lambda _: None)
    if "out" in changes:
        changes = changes | {"out": place / changes["out"]}
    with pytest.raises(ConfigError, match=said):
        watch(Plan(**{f: getattr(plan(place), f) for f in Plan.__slots__} | changes), print)


def test_two_watches_do_not_share_a_folder(place):
    checkpoint(place / "runs" / "grpo", 1)
    said = []

    def say(line):
        with pytest.raises(ConfigError, match="another watch"):
            watch(plan(place), print)
        said.append(line)

    watch(plan(place), say)
    assert said


def test_the_command_draws_the_curve(place, capsys):
    for step in (2, 10):
        checkpoint(place / "runs" / "grpo", step)
    words = ["watch", str(place / "runs" / "*"), "--once", "--out", str(place / "watch")]
    words += ["--command", plan(place).command]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "grpo step 2: toy 10.0%" in said
    assert "▁█  10.0% → 50.0%" in said
    assert main([*words, "--devices", "0,"]) == 2
