"""Episodes of verl's agent loop and their rewards, with a scripted model and all else as in a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from coding_model_project.configs.schema import coding_of
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.runs.rollouts import read_ungradable
from coding_model_project.types import Call, Problem, Test

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

PROBLEM = Problem(
    id="mine/1",
    split="train",
    statement="Define solve(x) returning twice x.",
    tests=(
        Test(input=Call(function="solve", args=(3,)), expected=6, public=True),
        Test(input=Call(function="solve", args=(71717,)), expected=143434),
    ),
)
RIGHT = "def solve(x):\n    return x * 2\n"
WRONG = "def solve(x):\n    return x + 2\n"
CRASHES = "def solve(x):\n    return y\n"
PUBLIC_ONLY = "def solve(x):\n    return 6\n"


@pytest.fixture(scope="module")
def tokenizer():
    from coding_model_project.synthetic.tiny_model import train_tokenizer

    return train_tokenizer(iter([RIGHT, PROBLEM.statement]), 300)


@pytest.fixture
def config(tmp_path):
    """Return a function from overrides to the configuration of `recipes.repair`."""
    from coding_model_project.verl_ext.trainers.grpo import plain

    write_problems(tmp_path / "problems.jsonl", [PROBLEM])
    overrides = [
        "hardware=cpu",
        f"coding.run_dir={tmp_path}",
        f"coding.problems=[{tmp_path}/problems.jsonl]",
        "coding.repair.observation_bytes=120",
        "data.max_response_length=400",
    ]
    return lambda *more: plain(compose_recipe("repair", [*overrides, *more]))


class Model:
    """A model that returns answers in turn, with distinct log-probabilities, and keeps the prompts."""

    def __init__(self, tokenizer, *answers: str) -> None:
        self.tokenizer = tokenizer
        self.answers = [tokenizer(answer)["input_ids"] for answer in answers]
        self.prompts: list[list[int]] = []

    async def generate(self, *, prompt_ids, sampling_params, **_):
        self.prompts.append(prompt_ids)
        tokens = [*self.answers[len(self.prompts) - 1], self.tokenizer.eos_token_id]
        tokens = tokens[: sampling_params.get("max_tokens", 400)]
        return SimpleNamespace(
            token_ids=tokens,
            log_probs=[-float(token) for token in tokens],
            num_preempted=None,
            routed_experts=None,
            extra_fields={"min_global_steps": len(self.prompts), "max_global_steps": 9},
        )


def a_loop(cls, config, model):
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    wrapped = DictConfigWrap(config)
    return cls(
        trainer_config=wrapped, server_manager=model, tokenizer=model.tokenizer, processor=None,
        dataset_cls=None, data_config=DictConfigWrap(config.data), hf_model_type="qwen2",
    )  # fmt: skip


ROW = {
    "raw_prompt": [{"role": "user", "content": PROBLEM.statement}],
    "reward_model": {"ground_truth": PROBLEM.id},
    "uid": "u",
    "session_id": 0,
    "global_steps": 1,
}


async def episode(config, tokenizer, *answers, judge=None):
    """Run an episode, and return its output and the model."""
    from coding_model_project.verl_ext.loops import repair_loop
    from coding_model_project.verl_ext.rewards.on_node import _PublicJudge

    coding = coding_of(config)
    # A run has the same object in a separate process.
    repair_loop.RepairLoop.places[config.coding.run_dir] = judge or _PublicJudge(coding)
    model = Model(tokenizer, *answers)
    loop = a_loop(repair_loop.RepairLoop, config, model)
    return await loop.run({"logprobs": True}, **ROW), model


def batch_of(output):
    """Return a loop's output in the form that verl gives a reward manager."""
    import numpy as np
    import torch
    from tensordict import TensorDict
    from verl import DataProto

    responses = torch.tensor([output.response_ids])
    prompts = torch.tensor([output.prompt_ids])
    mask = torch.ones(1, prompts.shape[1] + responses.shape[1], dtype=torch.int64)
    batch = TensorDict(
        {"prompts": prompts, "responses": responses, "attention_mask": mask}, batch_size=1
    )
    about = {key: np.array([value]) for key, value in ROW.items() if key != "raw_prompt"}
    about["tool_extra_fields"] = np.array([output.extra_fields], dtype=object)
    return DataProto(batch=batch, non_tensor_batch=about)


async def graded(config, tokenizer, output):
    """Return the reward manager's result for an output."""
    from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY, CodeRewardManager

    found = await CodeRewardManager(config, tokenizer).run_single(batch_of(output))
    return (
        found["reward_score"],
        found["reward_extra_info"],
        json.loads(found["reward_extra_info"][SAMPLE_KEY]),
    )


async def test_the_model_is_told_and_only_its_own_tokens_count(config, tokenizer):
    output, model = await episode(config(), tokenizer, WRONG, CRASHES, RIGHT)
    own = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    told = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if not m]
    eos = [tokenizer.eos_token_id]
    assert own == [t for answer in model.answers for t in answer + eos]
    text = tokenizer.decode(told)
    assert "wrong_answer\nsolve(3)\nexpected 6, got 5" in text
    assert "runtime_error\nsolve(3)\nexpected 6, got NameError: name 'y' is not defined" in text
    assert text.count("<|im_start|>assistant") == 2
    whole = tokenizer.decode(output.prompt_ids + output.response_ids)
    assert "71717" not in whole and "143434" not in whole
    # The model trains on exactly the tokens of its last request.
    assert model.prompts[-1] == (output.prompt_ids + output.response_ids)[: len(model.prompts[-1])]
    logged = zip(output.response_logprobs, output.response_mask, strict=True)
    assert [-p for p, m in logged if m] == own
    assert output.extra_fields["min_global_steps"] == 1

    score, info, sample = await graded(config(), tokenizer, output)
    assert score == 1.0
    assert (info["acc"], info["repairs"], info["repaired"]) == (1.0, 2.0, 1.0)
    assert [one["completion"] for one in sample["extra"]["attempts"]] == [WRONG, CRASHES, RIGHT]
    assert sample["tokens"] == len(own)


async def test_passing_the_public_tests_is_final_whatever_the_hidden_ones_say(config, tokenizer):
    output, model = await episode(config(), tokenizer, PUBLIC_ONLY, RIGHT)
    assert len(model.prompts) == 1
    assert set(output.response_mask) == {1}
    score, info, _ = await graded(config(), tokenizer, output)
    assert (score, info["repairs"], info["public_pass_hidden_fail"]) == (0.0, 0.0, 1.0)
    output, _ = await episode(config(), tokenizer, RIGHT)
    _, info, _ = await graded(config(), tokenizer, output)
    assert (info["acc"], info["repaired"]) == (1.0, 0.0)


async def test_an_episode_ends_at_its_limits(config, tokenizer):
    _, model = await episode(config("coding.repair.rounds=1"), tokenizer, WRONG, WRONG, RIGHT)
    assert len(model.prompts) == 2
    whole = config("data.max_response_length=150")  # no room for an observation and an attempt
    output, model = await episode(whole, tokenizer, WRONG, RIGHT)
    assert len(model.prompts) == 1
    assert 0 not in output.response_mask
    cut = config("coding.repair.attempt_tokens=5")  # half a program gets no observation
    _, model = await episode(cut, tokenizer, WRONG, RIGHT)
    assert len(model.prompts) == 1


async def test_best_pays_for_the_best_attempt_less_for_each_repair(config, tokenizer):
    """Dense: the first attempt crashes, the second passes half of the hidden tests."""
    hidden = [Test(input=Call(function="solve", args=(x,)), expected=2 * x) for x in (2, 71717)]
    public = PROBLEM.tests[0]
    run = config(
        "coding.repair.reward=best", "coding.repair.discount=0.5", "coding.reward.kind=dense"
    )
    write_problems(run.coding.problems[0], [replace(PROBLEM, tests=(public, *hidden))])
    output, _ = await episode(run, tokenizer, CRASHES, WRONG, CRASHES)
    score, info, sample = await graded(run, tokenizer, output)
    assert score == 0.25  # x + 2 is right for 2: half, after one repair
    assert sample["parts"] == {"outcome": 0.25}
    assert (info["acc"], info["pass_fraction"]) == (0.0, 0.0)  # the last attempt is reported
    output, _ = await episode(run, tokenizer, WRONG, CRASHES, CRASHES)
    assert (await graded(run, tokenizer, output))[0] == 0.5  # without a repair
    run.coding.repair.reward = "final"
    score, _, _ = await graded(run, tokenizer, output)
    assert score == 0.0


async def test_an_outage_leaves_the_sample_out_and_is_never_told(config, tokenizer):
    class Down:
        async def look(self, *_):
            raise SandboxError("the sandbox is gone")

    run = config()
    with pytest.raises(SandboxError):
        await episode(run, tokenizer, WRONG, RIGHT, judge=Down())
    (lost,) = read_ungradable(Path(run.coding.run_dir))
    assert (lost.problem, lost.sample, lost.reason) == ("mine/1", "u_0", "the sandbox is gone")


async def test_no_rounds_are_verls_own_single_turn(config, tokenizer):
    from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

    run = config("coding.repair.rounds=0")
    ours, model = await episode(run, tokenizer, WRONG)
    theirs = await a_loop(SingleTurnAgentLoop, run, Model(tokenizer, WRONG)).run(
        {"logprobs": True}, **ROW
    )
    for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs", "num_turns"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.extra_fields | {"attempts": None} == theirs.extra_fields | {"attempts": None}
    assert len(model.prompts) == 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("coding.repair.rounds=-1", "rounds"),
        ("coding.repair.observation_bytes=10", "observation_bytes"),
        ("coding.repair.attempt_tokens=500", "attempt_tokens"),
    ],
)
def test_bad_input_is_named(config, wrong, named):
    from coding_model_project.launch.checks.checks import check_values

    with pytest.raises(ConfigError, match=named):
        check_values(config(wrong))


def test_data_without_public_tests_cannot_be_repaired(config):
    from coding_model_project.launch.checks import episode_checks

    run = config()
    problems = [replace(PROBLEM, tests=PROBLEM.hidden_tests)]
    with pytest.raises(ConfigError, match="has a public test"):
        episode_checks.check_problems(run, problems)
    run.coding.repair.rounds = 0
    episode_checks.check_problems(run, problems)
