from datetime import UTC, datetime

import orjson
import pytest

from coding_model_project.errors import ConfigError, DataError
from coding_model_project.harbor.evaluation.job import Asked, Evaluation
from coding_model_project.harbor.evaluation.job_results import Job, score, scores
from coding_model_project.harbor.failures import RewardNotAnObjectError, VerifierTimeoutError
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.format.trial_results import (
    AgentInfo,
    AgentResult,
    ExceptionInfo,
    ModelInfo,
    StepResult,
    TrialFolder,
    TrialResult,
    VerifierResult,
    read_trials,
    trial_config,
    write_trial,
)
from tests.unit.harbor.folders import folder

START = datetime(2026, 1, 2, tzinfo=UTC)


def trial(task="a", rewards=None, error=None, name="t", steps=None):
    return TrialResult(
        task_name=task,
        trial_name=name,
        trial_uri="file:///t",
        task_id={"path": "/t"},
        task_checksum="sha256:0",
        config={},
        agent_info=AgentInfo(name="oracle", version="1"),
        verifier_result=None if rewards is None else VerifierResult(rewards=rewards),
        exception_info=None if error is None else ExceptionInfo.of(error),
        step_results=steps,
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
    failed = StepResult(step_name="s", exception_info=ExceptionInfo.of(OSError("x")))
    assert trial("a", {"reward": 1.0}, steps=(failed,)).reward_valid is False


def test_a_job_is_read_as_it_was_written(tmp_path):
    job = tmp_path / "jobs" / "mine"
    tasks = [load_task(folder(tmp_path / name)) for name in ("a" * 40, "steps-two")]
    results = []
    for task, error in zip(tasks, (None, RewardNotAnObjectError("bare")), strict=True):
        place = TrialFolder.make(job, task)
        place.log("began")
        config = trial_config(
            task, place, agent={"name": "oracle"}, environment={"import_path": "m:C"}, source="set"
        )
        result = TrialResult(
            task_name=task.name, trial_name=place.path.name, trial_uri=place.path.as_uri(),
            task_id={"path": str(task.path)}, task_checksum="x", config=config, source="set",
            agent_info=AgentInfo(name="oracle", version="1", model_info=ModelInfo(name="m")),
            agent_result=AgentResult(n_input_tokens=3, metadata={"turns": 2}), started_at=START,
            verifier_result=None if error else VerifierResult(rewards={"reward": 1}),
            exception_info=ExceptionInfo.of(error) if error else None,
        )  # fmt: skip
        write_trial(place, task, result)
        results.append(result)
    assert sorted(read_trials(job), key=lambda t: t.trial_name) == sorted(
        results, key=lambda t: t.trial_name
    )
    assert results[0].trial_name.startswith("a" * 32 + "__")
    assert results[1].exceptions == ("ValidationError",)
    written = {path.name for path in (job / results[1].trial_name).iterdir()}
    assert written >= {"config.json", "lock.json", "result.json", "trial.log", "exception.txt"}
    assert written >= {"agent", "verifier", "artifacts"}
    made = Job(job, {"name": "oracle"}, {"type": "docker"})
    made.trials += results
    made.write(3, n_concurrent_trials=2)
    written_result = orjson.loads((job / "result.json").read_bytes())
    assert written_result["finished_at"] is None
    stats = written_result["stats"]
    assert (stats["n_completed_trials"], stats["n_errored_trials"]) == (2, 1)
    assert (stats["n_pending_trials"], stats["n_input_tokens"]) == (1, 6)
    (key,) = scores(results)
    assert key == "oracle__m__set"
    counted = stats["evals"][key]
    assert counted["metrics"] == [{"mean": 1.0}]
    assert counted["pass_at_k"] == {"1": 1.0}
    assert counted["reward_stats"] == {"reward": {"1": [results[0].trial_name]}}
    assert counted["exception_stats"] == {"ValidationError": [results[1].trial_name]}


def test_a_result_that_is_none_is_named(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "result.json").write_text('{"task_name": "a"}')
    with pytest.raises(DataError, match=r"t/result\.json: not a Harbor trial's result"):
        read_trials(tmp_path)


@pytest.mark.parametrize("agents", [[], [{"name": "one"}, {"name": "two"}]])
def test_a_job_of_other_agents_is_not_resumed(agents, tmp_path):
    (tmp_path / "config.json").write_bytes(orjson.dumps({"agents": agents}))
    evaluation = Evaluation(tmp_path, [], Asked(model="m", attempts=1, environment={}))
    with (
        pytest.raises(
            ConfigError, match=r"the recorded one in name: None → bash; .* and 5 more; pass"
        ),
        evaluation.opened(),
    ):
        pass
