"""Our grading of Harbor tasks against what Harbor gave them: a corpus of our own, and the recorded one.

The recorded one holds the results of Harbor 0.25 with its oracle agent; it lies beside a checkout
and not in it. Where Harbor lets a forgery through, `honest_score` is what must come out, or
the line says that the agent's code ran in the verifier's process.
"""

import json
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_model_project.harbor.environment.tree import pack
from coding_model_project.harbor.failures import InvalidTask, VerifierError, exception_type
from coding_model_project.harbor.format.reward_rules import read_rewards
from coding_model_project.harbor.format.task import check_env, load_task
from tests import fresh
from tests.processes import ran

TESTS = Path(__file__).parents[1]
OWN = TESTS / "harbor_corpus"
RECORDED = TESTS.parents[1] / "shared" / "corpora" / "harbor"
CORPORA = {"own": OWN, "recorded": RECORDED}


@pytest.fixture(params=CORPORA)
def corpus(request) -> tuple[Path, dict[str, Any]]:
    """The folder of tasks, and what is expected of each."""
    folder = CORPORA[request.param]
    if not folder.exists():
        pytest.skip(f"{folder} is not here: it is compared elsewhere")
    return folder / "tasks", json.loads((folder / "expected.json").read_text())["tasks"]


def differences(expected: Mapping[str, Any], line: Mapping[str, Any]) -> list[str]:
    """Return how a line of `harbor grade --oracle --json` differs from Harbor's result."""
    if not expected["accepted"]:
        refused = line["rewards"] is None and not line["reward_valid"] and line["exception"]
        return [] if refused else [f"should be refused: {line}"]
    if expected.get("honest_score") is not None:
        earned = (line["rewards"] or {}).get("reward", 0)
        honest = earned <= expected["honest_score"] or line["integrity"] == "in_process"
        return [] if honest else [f"was forged: {line['rewards']}"]
    keys = ("exception", "failure_cause", "reward_valid")
    differ = [key for key in keys if line[key] != expected[key]]
    if not same_rewards(expected["rewards"], line["rewards"]):
        differ.append("rewards")
    return [f"{key}: {line[key]}, not {expected[key]}" for key in differ]


def same_rewards(expected: Mapping[str, float] | None, got: Mapping[str, float] | None) -> bool:
    if expected is None or got is None:
        return expected is got
    return expected.keys() == got.keys() and all(
        math.isclose(expected[key], got[key], abs_tol=1e-12) for key in expected
    )


def test_tasks_are_accepted_and_refused_as_by_harbor(corpus):
    folder, expected = corpus
    assert {path.name for path in folder.iterdir()} == set(expected)
    for name, wanted in expected.items():
        try:
            task = load_task(folder / name)
            check_env(task, oracle=True)
        except InvalidTask as error:
            assert not wanted["accepted"], f"{name}: {error}"
        else:
            assert wanted["accepted"], f"{name} should be refused"
            assert task.name == wanted["task_name"]


def test_reward_files_are_read_as_by_harbor(corpus, tmp_path):
    folder, expected = corpus
    tested = {n: e for n, e in expected.items() if e["category"] in ("reward.txt", "reward.json")}
    assert len(tested) >= 8
    for name, wanted in tested.items():
        logs = tmp_path / name
        logs.mkdir()
        script = (folder / name / "tests" / "test.sh").read_bytes()
        script = script.replace(b"/logs/verifier", os.fsencode(logs))
        subprocess.run(["bash", "-c", script], check=False)  # printf and redirection only
        try:
            got, said = read_rewards(pack(str(logs), 1 << 20, 9)), None
        except VerifierError as error:
            got, said = None, exception_type(error)
        assert (said, same_rewards(wanted["rewards"], got)) == (wanted["exception"], True), name


@pytest.mark.contract
@pytest.mark.sandbox
def test_oracle_trials_end_as_in_harbor(corpus):
    folder, expected = corpus
    command = [fresh.python(), "-m", "coding_model_project", "harbor", "grade", str(folder)]
    done = ran([*command, "--oracle", "--json"])
    if done.returncode == 3 and not done.stdout:
        pytest.skip(f"no environment here: {done.stderr.strip()}")
    lines = {line["task"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert set(lines) == set(expected), done.stderr
    wrong = {
        name: found
        for name, wanted in expected.items()
        if (found := differences(wanted, lines[name]))
    }
    assert wrong == {}
