"""The tiny post-training task, whole, in rooms: solved by its own solution, and cheated four ways.

What a cheat earns is what the base model earns, to the last digit.
"""

import asyncio
import json
from pathlib import Path

import pytest

from coding_model_project.cli import main
from coding_model_project.harbor.agents import Oracle, Script
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.tree import of_folder
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials

pytestmark = [pytest.mark.e2e, pytest.mark.verl, pytest.mark.soak, pytest.mark.timeout(1200)]

N_PROBLEMS = 40
SUBMITS_BASE = "mkdir -p /app/final_model && cp /models/base/* /app/final_model/\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The base model, and one of the same shape that began with other random numbers."""
    from coding_model_project.synthetic import tinycode
    from coding_model_project.synthetic.tiny_model import TinyModelConfig, pretrain

    folder = tmp_path_factory.mktemp("models")
    corpus = tinycode.NoisyPrograms(tinycode.generate(seed=0))
    pretrain(folder / "base", corpus, TinyModelConfig(steps=300, batch_size=32), seed=0)
    pretrain(folder / "other", corpus, TinyModelConfig(steps=20, batch_size=32), seed=1)
    return folder


@pytest.fixture(scope="module")
def task(models, tmp_path_factory):
    out = tmp_path_factory.mktemp("tasks") / "tasks"
    words = ["--benchmark", "tinycode", "--model", "tiny", "--num-hours", "0.5"]
    more = ["--limit", str(N_PROBLEMS), "--oracle-steps", "120", "--base", str(models / "base")]
    assert main(["harbor", "posttrain", *words, *more, "--out", str(out)]) == 0
    return load_task(out / "posttrainbench-tinycode-tiny")


class Files:
    """An agent that brings files, and runs a script."""

    name = "files"

    def __init__(self, folder, path, script):
        self._folder, self._path, self._script = folder, path, script

    async def run(self, task, step, environment):
        await environment.write_tree(self._path, of_folder(self._folder))
        await Script(self._script).run(task, step, environment)


def attempt(task, agent, verifier_env=None):
    """The outcome, and the verifier's files by name."""

    async def body():
        try:
            async with EmbeddedEnvironments() as environments:
                return await Trials(environments, verifier_env=verifier_env).run(task, agent)
        except EnvironmentFailed as error:
            pytest.skip(f"no tier namespaces: {error}")

    outcome = asyncio.run(body())
    (step,) = outcome.steps
    names = [entry[0] for entry in step.verifier_files.entries if entry[1] == "f"]
    files = {name: (step.verifier_files.file(name) or b"").decode() for name in names}
    return outcome, files, step.verifier_output


def reward_of(outcome, said):
    assert outcome.rewards is not None, said
    return outcome.rewards["reward"]


@pytest.fixture(scope="module")
def base_score(task):
    """The reward of the base model, submitted as it is."""
    outcome, files, said = attempt(task, Script(SUBMITS_BASE))
    assert files["disallowed_model_judgement.txt"].startswith("only allowed use detected")
    return reward_of(outcome, said)


def test_the_solution_earns_more_than_the_base_model(task, base_score):
    outcome, files, said = attempt(task, Oracle())
    metrics = json.loads(files["metrics.json"])
    assert reward_of(outcome, said) == metrics["submission"]["accepted"] > base_score
    assert metrics["base"]["accepted"] == base_score
    interval = metrics["submission"]["pass@k"]["1"]
    assert interval["low"] < interval["value"] < interval["high"]
    assert metrics["agent_duration_s"] > 0
    assert files["contamination_judgement.txt"].startswith("no contamination detected")
    assert json.loads(files["judge_analysis.json"])["missing"] == []


def test_test_problems_in_the_training_data_earn_the_base_models_score(task, base_score, tmp_path):
    (tmp_path / "extra.jsonl").write_bytes((task.path / "tests" / "problems.jsonl").read_bytes())
    (tmp_path / "train.py").write_bytes((task.path / "solution" / "train.py").read_bytes())
    train = "cd /app && python3 train.py /models/base extra.jsonl final_model 60"
    outcome, files, said = attempt(task, Files(tmp_path, "/app", train))
    assert reward_of(outcome, said) == base_score
    assert files["contamination_judgement.txt"].startswith("contamination detected")
    assert "/app/extra.jsonl" in files["contamination_judgement.txt"]


def test_another_model_earns_the_base_models_score(task, base_score, models):
    outcome, files, said = attempt(task, Files(models / "other", "/app/final_model", "true"))
    assert reward_of(outcome, said) == base_score
    assert files["disallowed_model_judgement.txt"].startswith("disallowed use detected")
    assert "cosine" in files["disallowed_model_judgement.txt"]


def test_an_edited_evaluation_and_a_written_reward_earn_the_base_models_score(task, base_score):
    script = SUBMITS_BASE + (
        "echo 'print(1.0)' > /app/evaluate.py\n"
        "echo '{\"accuracy\": 1.0}' > /app/metrics.json\n"
        "echo 'import os; os._exit(0)' > /app/sitecustomize.py\n"
        "echo 1.0 > /logs/verifier/reward.txt; echo '{\"reward\": 1.0}' > /logs/verifier/reward.json\n"
        "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh\n"
    )
    outcome, files, said = attempt(task, Script(script))
    assert reward_of(outcome, said) == base_score
    assert "reward.json" not in files


def test_without_a_judges_verdict_there_is_no_reward(task):
    judge = {"POSTTRAIN_JUDGE_URL": "http://127.0.0.1:9/v1", "POSTTRAIN_JUDGE_MODEL": "judge"}
    outcome, files, said = attempt(task, Script(SUBMITS_BASE), judge)
    assert outcome.rewards is None
    assert outcome.exception == "RewardFileNotFoundError"
    assert json.loads(files["judge_analysis.json"])["missing"] == ["language_model"]
    assert files["contamination_judgement.txt"].startswith("no verdict")
    assert "no verdict of language_model" in said


def test_nothing_submitted_earns_the_base_models_score(task, base_score):
    outcome, files, said = attempt(task, Script("true"))
    assert reward_of(outcome, said) == base_score
    assert "there is no folder" in files["disallowed_model_judgement.txt"]


def test_the_agents_evaluation_works_in_its_room(task, tmp_path):
    script = SUBMITS_BASE + (
        "cd /app && bash timer.sh > timer.txt && "
        "python3 evaluate.py --model-path final_model --limit 3 --json-output-file found.json"
    )

    class Reading:
        name = "reading"

        async def run(self, task, step, environment):
            ended = await environment.run_command(script)
            assert ended.exit_code == 0, ended.stderr
            Path(tmp_path / "found.json").write_bytes(
                await environment.read_file("/app/found.json")
            )
            assert b"left" in await environment.read_file("/app/timer.txt")

    attempt(task, Reading())
    assert json.loads((tmp_path / "found.json").read_text())["problems"] == 3
