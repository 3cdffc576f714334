"""Episodes with repairs through verl's own trainer, on a model that has learned to answer wrongly.

An episode leaves nothing but its samples: how a run resumes is GRPO's (test_interruption.py); a killed
repair run is resumed by tests/soak/fault_matrix.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.errors import TrainingError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.rollouts import read_all_rollouts
from recipes.repair.__main__ import RECIPE
from tests.end_to_end.conftest import N_PROBLEMS, problem
from tests.end_to_end.started import logged

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.timeout(600)]

HIDDEN_INPUT = 71717


def with_a_public_test(number: int):
    """The world's problem, whose answer nobody can guess from the public test."""
    first, *rest = problem(number).tests
    hidden = replace(rest[0].input, args=(HIDDEN_INPUT,))
    tests = (replace(first, public=True), replace(rest[0], input=hidden, expected=HIDDEN_INPUT))
    return replace(problem(number), tests=tests)


def wrong_model(source: Path, out: Path) -> None:
    """The world's random model, taught to end what it writes: a program that is wrong everywhere."""
    from transformers import AutoTokenizer, Qwen2ForCausalLM

    from coding_model_project.synthetic import tiny_model

    tokenizer = AutoTokenizer.from_pretrained(source)
    model = Qwen2ForCausalLM.from_pretrained(source)

    conversations = [
        [
            {"role": "user", "content": problem(number).statement},
            {"role": "assistant", "content": "x"},
        ]
        for number in range(N_PROBLEMS)
    ]
    batches = itertools.repeat(tiny_model._examples(conversations, tokenizer))
    tiny_model._fit(model, batches, tiny_model.TinyModelConfig(steps=30, warmup_steps=1), None)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def test_a_repair_run_trains_on_the_models_tokens_only_and_on_no_other_policys(
    world, tmp_path, in_ray
):
    """One run: after two steps the rollout gets other weights than the trainer's, without an error."""
    wrong_model(world.root / "model", tmp_path / "model")
    write_problems(tmp_path / "problems.jsonl", map(with_a_public_test, range(N_PROBLEMS)))

    overrides = [
        *world.overrides(tmp_path / "run"),
        f"coding.problems=[{tmp_path}/problems.jsonl]",
        f"actor_rollout_ref.model.path={tmp_path}/model",
        "coding.repair.rounds=1",
        "coding.repair.attempt_tokens=24",
        "data.max_response_length=400",
        "trainer.total_training_steps=3",
        "trainer.save_freq=-1",
        "actor_rollout_ref.model.external_lib=tests.broken_sync",
    ]
    with pytest.raises(TrainingError, match=r"step 3: rollout/mismatch is \d") as caught:
        carry_out(RECIPE, compose_recipe("repair", overrides))
    assert "coding.training.guards.max_mismatch=0.01" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    steps = [row["data"] for row in logged(tmp_path / "run") if "repair/rounds" in row["data"]]
    assert [row["training/global_step"] for row in steps] == [1, 2]
    episodes = list(read_all_rollouts(tmp_path / "run"))
    assert len(episodes) == 2 * 4 * N_PROBLEMS
    for row in steps:
        assert row["repair/rounds"] == row["repair/tried"] > 0.5
        # vLLM's own count: what the model was told is in the response, and in nothing that trains.
        assert row["rollout/trained_tokens"] == row["rollout/generated_tokens"]
        assert row["response_length/mean"] * 4 * N_PROBLEMS > row["rollout/trained_tokens"]
        assert row["repair/accepted_by_round_1"] == row["judge/accepted"]
    told = [
        attempt for row in episodes for attempt in row.extra["attempts"] if attempt["observation"]
    ]
    assert told
    assert all(attempt["public_error"] in attempt["observation"] for attempt in told)
    for row in episodes:
        assert str(HIDDEN_INPUT) not in row.prompt + row.completion
        first, *more = row.extra["attempts"]
        if more:  # its observation lies between the two
            assert first["end"] < more[0]["start"]
            assert first["observation"] in row.completion
