"""Jobs in Harbor's format: scores, trials with their files, and reading back what was written."""

import json
from dataclasses import replace
from datetime import datetime

import orjson
import pytest

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.harbor.environment.tree import Tree, of_bytes
from coding_model_project.harbor.evaluation.job import Asked, Evaluation
from coding_model_project.harbor.evaluation.job_folder import Job, Worked
from coding_model_project.harbor.evaluation.scores import score
from coding_model_project.harbor.failures import (
    RewardNotAnObjectError,
    VerifierTimeoutError,
    exception_type,
)
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.harbor_config import Integrity
from coding_model_project.harbor.outcome import (
    Collected,
    StepOutcome,
    TrialOutcome,
    TrialResult,
    read_trials,
)
from tests.unit.harbor.folders import folder


def trial(task="a", rewards=None, error=None):
    return TrialResult(
        trial_name="t",
        task_name=task,
        path="/t",
        source="set",
        digest="0",
        agent="oracle",
        rewards=rewards,
        integrity=Integrity.isolated,
        exceptions=() if error is None else (exception_type(error),),
    )


class AgentTimeoutError(Exception):
    pass


def test_an_outage_is_no_failure():
    done = [trial("a", {"reward": 1}), trial("a", {"reward": 0.0}), trial("b", {"reward": 1})]
    out = [trial("b", error=OSError("disk")), trial("c", error=VerifierTimeoutError("late"))]
    counted = score([*done, *out])
    assert (counted.passed, counted.failed) == (2, 1)
    assert counted.errors == {"unclassified": 1, "verifier_failed": 1}
    assert (counted.n_tasks, counted.n_tasks_without) == (2, 1)
    assert counted.pass_at_k == {1: 0.75}
    assert counted.mean_reward == 0.75


def test_a_time_out_of_the_agent_is_its_own_doing():
    counted = score([trial("a", {"reward": 0.5}, AgentTimeoutError("late"))])
    assert (counted.passed, counted.failed, counted.errors) == (0, 1, {})


def test_several_rewards_need_a_main_one():
    counted = score([trial("a", {"x": 1, "y": 1}), trial("a", {"reward": 1, "bytes": 41})])
    assert (counted.passed, counted.errors) == (1, {"no_main_reward": 1})
    assert score([trial("a", {"score": 1.0})]).passed == 1


def test_nothing_graded_has_no_rate():
    counted = score([trial("a", {})])
    assert (counted.pass_at_k, counted.interval, counted.mean_reward) == ({}, None, None)


def test_a_failed_step_makes_the_reward_invalid():
    assert trial("a", {"reward": 1.0}, OSError("x")).reward_valid is False


def test_a_job_is_read_as_it_was_written(tmp_path):
    agent = {"name": "oracle", "model_name": "m", "kwargs": {"turns": 2}}
    job = Job(tmp_path / "job", agent, "podman")
    used = Worked(prompt_tokens=3, completion_tokens=1, metadata={"turns": 2}, trajectory={"a": 1})
    for name, rewards, error in (
        ("a" * 40, {"reward": 1}, None),
        ("bare", None, RewardNotAnObjectError("bare")),
    ):
        task = replace(load_task(folder(tmp_path / name)), source="set")
        step = StepOutcome(name=None, rewards=rewards, error=error)
        ended = TrialOutcome(task=task, rewards=rewards, error=error, steps=(step,))
        job.add(ended, [used], attempt=3)
    job.write(3, n_concurrent_trials=2)
    first, second = job.trials
    assert read_trials(job.folder) == tuple(sorted(job.trials, key=lambda one: one.trial_name))
    assert first.trial_name.startswith("a" * 32 + "__")
    config = orjson.loads((job.folder / first.trial_name / "config.json").read_bytes())
    assert config["agent"]["kwargs"] == {"turns": 2, "attempt": 3} and first.attempt == 3
    assert second.exceptions == ("ValidationError",)
    written = {path.name for path in (job.folder / second.trial_name).iterdir()}
    assert written >= {"config.json", "result.json", "trial.log", "exception.txt"}
    assert written >= {"agent", "verifier", "artifacts"}
    result = orjson.loads((job.folder / "result.json").read_bytes())
    assert result["finished_at"] is None
    stats = result["stats"]
    assert (stats["n_completed_trials"], stats["n_errored_trials"]) == (2, 1)
    assert (stats["n_pending_trials"], stats["n_input_tokens"]) == (1, 6)
    counted = stats["evals"]["oracle__m__set"]
    assert counted["metrics"] == [{"mean": 1.0}]
    assert counted["pass_at_k"] == {"1": 1.0}
    assert counted["reward_stats"] == {"reward": {"1": [first.trial_name]}}
    assert counted["exception_stats"] == {"ValidationError": [second.trial_name]}


def test_a_result_that_is_none_is_named(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "result.json").write_text('{"task_name": "a"}')
    with pytest.raises(DataError, match=r"t/result\.json: not a trial's result"):
        read_trials(tmp_path)


@pytest.mark.parametrize("agents", [[], [{"name": "one"}, {"name": "two"}]])
def test_a_job_of_other_agents_is_not_resumed(agents, tmp_path):
    (tmp_path / "config.json").write_bytes(orjson.dumps({"agents": agents}))
    evaluation = Evaluation(tmp_path, [], Asked(model="m", attempts=1, environment="rooms"))
    with (
        pytest.raises(
            ConfigError, match=r"the recorded one in name: None → bash; .* and 6 more; pass"
        ),
        evaluation.opened(),
    ):
        pass


@pytest.fixture
def job(tmp_path):
    return Job.new(tmp_path / "job", "oracle", "rooms")


def outcome(path, *steps, rewards=None, error=None):
    return TrialOutcome(
        task=load_task(path), rewards=rewards, error=error, steps=steps, wall_s=3.0,
        notes=("a note",),
    )  # fmt: skip


def test_a_trial_is_kept_with_its_files_but_no_link_to_others(job, tmp_path):
    files = of_bytes("out.txt", b"kept")
    artifacts = Tree((*files.entries, ("link", "l", 0o777, "/etc/hostname")))
    one_file = of_bytes("", b"kept")
    collected = (
        Collected(path="logs/artifacts", destination="logs/artifacts", found=Tree()),
        Collected(path="app", destination="app", found=artifacts),
        Collected(path="app/x", destination="kept/here", found=one_file),
        Collected(path="app/y", destination="app/out.txt/y", found=one_file),  # below another
    )
    hostile = (
        ("deep", "d", 0o755, ""),
        ("deep/up", "l", 0o777, ".."),
        ("out", "l", 0o777, "deep/up/.."),  # stays inside by its text, and leads out
        ("out/planted", "f", 0o644, b""),
        ("../planted", "f", 0o644, b""),
        ("test-stdout.txt", "d", 0o755, ""),
        ("run", "f", 0o4755, b""),
    )
    step = StepOutcome(
        name=None, rewards={"reward": 1}, verifier_output="ok\n", collected=collected,
        verifier_files=Tree(hostile), agent_files=of_bytes("oracle.txt", b"kept"),
        agent_s=1.0, verifier_s=0.5,
    )  # fmt: skip
    kept = job.add(outcome(folder(tmp_path / "a"), step, rewards={"reward": 1}))
    place = job.folder / kept.trial_name
    given = place / "artifacts"
    found = {str(path.relative_to(given)) for path in given.rglob("*")}
    assert found == {"logs", "logs/artifacts", "app", "app/out.txt", "kept", "kept/here"}
    assert (place / "agent" / "oracle.txt").read_text() == "kept"
    assert (place / "verifier" / "test-stdout.txt").read_text() == "ok\n"
    assert not list(place.glob("planted"))
    assert (place / "verifier" / "run").stat().st_mode & 0o7777 == 0o755
    assert json.loads((place / "verifier" / "reward.json").read_text()) == {"reward": 1}
    assert "a note" in (place / "trial.log").read_text()
    assert read_trials(job.folder) == (kept,)
    assert (kept.agent_s, kept.judge_s) == (1.0, 0.5)
    written = json.loads((place / "result.json").read_text())
    begins, ends = (datetime.fromisoformat(x) for x in written["agent_execution"].values())
    assert (ends - begins).total_seconds() == pytest.approx(1.0)


def test_steps_are_kept_apart_and_a_job_is_counted(job, tmp_path):
    path = folder(tmp_path / "b", '[[steps]]\nname = "s"', steps__s__instruction_md="x")
    late = VerifierTimeoutError("late")
    job.add(outcome(path, StepOutcome(name="s", error=late)))
    done = StepOutcome(name="s", rewards={"reward": 0.5})
    kept = job.add(outcome(path, done, rewards={"reward": 0.5}))
    written = json.loads((job.folder / kept.trial_name / "result.json").read_text())
    assert [one["step_name"] for one in written["step_results"]] == ["s"]
    assert (job.folder / kept.trial_name / "steps" / "s" / "verifier" / "reward.json").exists()
    counted = score(job.trials)
    assert (counted.passed, counted.failed, counted.errors) == (0, 1, {"verifier_failed": 1})
