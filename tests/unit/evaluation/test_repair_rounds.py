"""An evaluation with repairs: what the model is told, what it costs, how it goes on."""

import json
from dataclasses import replace

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError, GenerationError, PromptError, SandboxError
from coding_model_project.evaluation.journal import read_rows
from coding_model_project.evaluation.results import Generated, read_evaluation
from coding_model_project.runs.rollouts import read_rollouts
from coding_model_project.types import Stdin, Test
from tests.fakes import stdin_problem
from tests.unit.evaluation.test_evaluate import Writer, config, judged, run

pytestmark = pytest.mark.slow

N_SAMPLES = 4


class Learner(Writer):
    """Answers wrongly until it is told what was expected, by seed; its programs are their own output."""

    identity = "a learner"

    def __init__(self, longest=99, **more):
        super().__init__(concurrency=2, **more)
        self.longest, self.shown = longest, []

    async def complete(self, messages, sampling, seed):
        if len(messages) > self.longest:
            raise PromptError("too long")
        made = await super().complete(messages, sampling, seed)
        self.shown.append(messages)
        text = f"wrong {len(messages)}"
        if len(messages) == 3 and seed % 2:
            text = messages[-1]["content"].split("'")[1]
        return replace(made, text=text, n_tokens=10, truncated=False)


@pytest.fixture
def problems(tmp_path):
    found = [
        stdin_problem(
            id=f"toy/{i}",
            statement=str(i),
            tests=(
                Test(input=Stdin("1"), expected=f"answer {i}", public=True),
                Test(input=Stdin("71717"), expected=f"answer {i}"),
            ),
        )
        for i in range(3)
    ]
    write_problems(tmp_path / "toy.jsonl", found)
    return tmp_path / "toy.jsonl"


def evaluation(problems, folder, **keys):
    return config(problems, folder, **{"n": N_SAMPLES, "repair_rounds": 2} | keys)


def test_samples_are_repaired_and_all_attempts_are_paid_for(problems, tmp_path):
    model = Learner()
    metrics, _ = run(evaluation(problems, tmp_path / "run"), model)
    toy, n = metrics["toy"], 3 * N_SAMPLES
    results = read_evaluation(tmp_path / "run").results
    assert {(r.passed, r.repairs, r.tokens) for r in results} == {(True, 1, 20), (False, 2, 30)}
    assert toy["repair"]["accepted_by_round"] == [0.0, toy["accepted"], toy["accepted"]]
    assert toy["repair"]["repaired"] == toy["accepted"]
    assert toy["tokens"]["total"] == 10 * len(model.shown)
    assert toy["samples"] == n
    told = [message for messages in model.shown for message in messages]
    assert "wrong_answer\n1\nexpected 'answer 0', got 'wrong 1'" in {m["content"] for m in told}
    assert "71717" not in json.dumps(told)
    rows = list(read_rollouts(tmp_path / "run"))
    lengths = {(row.problem, int(row.sample)): len(row.extra["attempts"]) for row in rows}
    assert lengths == {(r.problem, r.sample): r.repairs + 1 for r in results}
    log = (tmp_path / "run" / "qa_logs" / "toy.md").read_text()
    assert "observation:" in log


def test_a_stopped_one_goes_on_to_the_same_result(problems, tmp_path):
    run(evaluation(problems, tmp_path / "whole"), Learner())
    with pytest.raises(GenerationError):
        run(evaluation(problems, tmp_path / "run"), Learner(fails_after=13))
    kept = len(list(read_rows(tmp_path / "run" / "completions.jsonl", Generated)))
    assert 0 < kept < 3 * N_SAMPLES
    run(evaluation(problems, tmp_path / "run"), Learner())

    def known(name):
        return {k: (r.passed, r.tokens, r.repairs) for k, r in judged(tmp_path / name).items()}

    assert known("run") == known("whole")


def test_a_conversation_that_grows_too_long_keeps_its_last_answer(problems, tmp_path):
    metrics, _ = run(evaluation(problems, tmp_path / "run"), Learner(longest=3))
    assert metrics["toy"]["refused"] == 0
    assert max(result.repairs for result in read_evaluation(tmp_path / "run").results) == 1


def test_an_outage_between_attempts_ends_it_and_scores_nothing(problems, tmp_path):
    down = "tests.unit.evaluation.test_evaluate:Down"
    with pytest.raises(SandboxError, match="out of order"):
        run(evaluation(problems, tmp_path / "run", sandbox=down), Learner())
    assert not (tmp_path / "run" / "results.jsonl").read_bytes()


def test_without_rounds_nothing_changes_and_rounds_need_public_tests(problems, tmp_path):
    run(evaluation(problems, tmp_path / "plain", repair_rounds=0), Learner())
    protocol = json.loads((tmp_path / "plain" / "run_info.json").read_text())["protocol"]
    assert not {"repair_rounds", "observation_bytes"} & protocol.keys()
    kept = read_rows(tmp_path / "plain/completions.jsonl", Generated)
    assert not any(one.attempts for one in kept)
    write_problems(problems, [stdin_problem(("1", "2"), id="toy/1", statement="1")])
    with pytest.raises(ConfigError, match="no problem has a public test"):
        run(evaluation(problems, tmp_path / "run"), Learner())
    with pytest.raises(ConfigError, match="repair_rounds=-1"):
        run(evaluation(problems, tmp_path / "other", repair_rounds=-1), Learner())
