import json

import pytest

from coding_model_project.cli import main
from coding_model_project.harbor.environment.tree import Tree, of_files
from coding_model_project.harbor.evaluation.job_folder import Job
from coding_model_project.harbor.failures import VerifierTimeoutError
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.outcome import (
    Collected,
    CollectedStatus,
    StepOutcome,
    TrialOutcome,
    read_trials,
)
from tests.unit.harbor.folders import folder


@pytest.fixture
def job(tmp_path):
    return Job.new(tmp_path / "job", "oracle", "rooms")


def outcome(path, *steps, rewards=None, error=None):
    return TrialOutcome(
        task=load_task(path), rewards=rewards, error=error, steps=steps, wall_s=3.0,
        notes=("a note",),
    )  # fmt: skip


def test_a_trial_is_kept_with_its_files_but_no_link_to_others(job, tmp_path):
    (tmp_path / "out.txt").write_text("kept")
    files = of_files([("out.txt", tmp_path / "out.txt")])
    artifacts = Tree(
        entries=(*files.entries, ("link", "l", 0o777, "/etc/hostname")), body=files.body
    )
    planted = Tree((("manifest.json", "d", 0o755, 0),))
    one_file = of_files([("", tmp_path / "out.txt")])
    collected = (
        Collected(source="/logs/artifacts", path="logs/artifacts", destination=".", found=planted),
        Collected(source="/app", path="app", destination="app", found=artifacts, exclude=("*.o",)),
        Collected(source="/app", path="app", destination="kept/here", found=one_file),
        Collected(
            source="/app/x", path="app/x", destination="app/x", found=one_file,
            status=CollectedStatus.skipped,
        ),
        Collected(
            source="/none", path="none", destination="none", found=None,
            status=CollectedStatus.failed,
        ),
    )  # fmt: skip
    hostile = (
        ("deep", "d", 0o755, 0),
        ("deep/up", "l", 0o777, ".."),
        ("out", "l", 0o777, "deep/up/.."),  # stays inside by its text, and leads out
        ("out/planted", "f", 0o644, 0),
        ("../planted", "f", 0o644, 0),
        ("test-stdout.txt", "d", 0o755, 0),
        ("run", "f", 0o4755, 0),
    )
    step = StepOutcome(
        name=None, rewards={"reward": 1}, verifier_output="ok\n", collected=collected,
        verifier_files=Tree(hostile), agent_files=of_files([("oracle.txt", tmp_path / "out.txt")]),
        agent_s=1.0, verifier_s=0.5,
    )  # fmt: skip
    kept = job.add(outcome(folder(tmp_path / "a"), step, rewards={"reward": 1}))
    place = job.folder / kept.trial_name
    given = place / "artifacts"
    assert {str(path.relative_to(given)) for path in given.rglob("*")} == {
        *("app", "app/out.txt", "kept", "kept/here", "manifest.json"),
    }
    manifest = json.loads((given / "manifest.json").read_text())
    keys = ["source", "destination", "type", "status", "service", "exclude"]
    assert [list(one) for one in manifest] == [keys] * 5
    assert [tuple(one.values()) for one in manifest] == [
        ("/logs/artifacts", "artifacts", "directory", "ok", None, []),
        ("/app", "artifacts/app", "directory", "ok", None, ["*.o"]),
        ("/app", "artifacts/kept/here", "file", "ok", None, []),
        ("/app/x", "artifacts/app/x", "file", "skipped", None, []),
        ("/none", "artifacts/none", "file", "failed", None, []),
    ]
    assert (place / "agent" / "oracle.txt").read_text() == "kept"
    assert (place / "verifier" / "test-stdout.txt").read_text() == "ok\n"
    assert not list(place.glob("planted"))
    assert (place / "verifier" / "run").stat().st_mode & 0o7777 == 0o755
    assert json.loads((place / "verifier" / "reward.json").read_text()) == {"reward": 1}
    assert "a note" in (place / "trial.log").read_text()
    assert read_trials(job.folder) == (kept,)
    execution = kept.agent_execution
    assert execution is not None and execution.started_at and execution.finished_at
    assert (execution.finished_at - execution.started_at).total_seconds() == pytest.approx(1.0)


def test_steps_are_kept_apart_and_a_job_is_counted(job, tmp_path, capsys):
    path = folder(tmp_path / "b", '[[steps]]\nname = "s"', steps__s__instruction_md="x")
    late = VerifierTimeoutError("late")
    job.add(outcome(path, StepOutcome(name="s", error=late)))
    done = StepOutcome(name="s", rewards={"reward": 0.5})
    kept = job.add(outcome(path, done, rewards={"reward": 0.5}))
    assert kept.step_results is not None
    assert (job.folder / kept.trial_name / "steps" / "s" / "verifier" / "reward.json").exists()
    assert main(["harbor", "results", str(job.folder)]) == 0
    said = capsys.readouterr().out
    assert "PASS 0, FAIL 1, ERROR 1" in said
    assert "1 × verifier_failed" in said
    (counted,) = json.loads(said.splitlines()[-1]).values()
    assert counted["pass_at_k"] == {"1": 0.0}
    assert main(["harbor", "results", str(tmp_path)]) == 2
    assert "no trials of a Harbor job" in capsys.readouterr().err
