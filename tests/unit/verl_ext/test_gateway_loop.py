"""An agent's work in verl's agent loop: a scripted model, a real agent, real rooms and verifiers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.episodes.tool_calls import bash_call
from coding_model_project.errors import ConfigError, GenerationError, HarborError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.runs.rollouts import read_ungradable
from tests.tables import tables
from tests.unit.harbor.folders import folder
from tests.unit.harbor.test_gateway_agents import AGENT, CHECK, SHELL
from tests.unit.verl_ext.test_bash_loop import PROBLEM
from tests.unit.verl_ext.test_repair_loop import ROW, Model, a_loop, graded

CASES = tables("verl_ext")

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

CALL = bash_call("echo 0.5 > answer; echo out").text()
ANOTHER = 'post("/chat/completions", {"messages": [{"role": "user", "content": "Sum up."}]})'


@pytest.fixture(scope="module")
def tokenizer():
    from coding_model_project.synthetic.tiny_model import train_tokenizer

    return train_tokenizer(iter([CALL, "Do it. Done. out"]), 300, tools=True)


@pytest.fixture
def config(tmp_path):
    """Return a function from overrides to the configuration of `recipes.harbor` with an agent."""
    from coding_model_project.verl_ext.trainers.grpo import plain

    folder(tmp_path / "task", tests__test_sh=CHECK)
    (tmp_path / "task" / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
    write_problems(tmp_path / "problems.jsonl", [PROBLEM])
    (tmp_path / "my_agent.py").write_text(AGENT.replace("RUN", SHELL))
    overrides = [
        "hardware=cpu",
        f"coding.run_dir={tmp_path}",
        f"coding.problems=[{tmp_path}/problems.jsonl]",
        f'coding.agent.command="{sys.executable} my_agent.py"',
        f"coding.agent.folder={tmp_path}",
        "data.max_response_length=600",
        "data.max_prompt_length=300",
        "actor_rollout_ref.rollout.max_model_len=900",
        "coding.reward.kind=dense",
    ]
    return lambda *more: plain(compose_recipe("harbor", [*overrides, *more]))


async def outputs(config, tokenizer, *replies, model=None):
    """Run a sample, and return its outputs and the model."""
    from coding_model_project.verl_ext.loops import gateway_loop

    gateway_loop.GatewayLoop.places.clear()
    model = model or Model(tokenizer, *replies)
    try:
        loop = a_loop(gateway_loop.GatewayLoop, config, model)
        return await loop.run({"logprobs": True}, **ROW), model
    finally:
        for place in gateway_loop.GatewayLoop.places.values():
            if place._starting is not None:
                await place._gateway.__aexit__(None, None, None)
            await place.grader.__aexit__(None, None, None)


async def test_what_the_model_generated_is_trained_on_and_nothing_else(config, tokenizer):
    (output,), model = await outputs(config(), tokenizer, CALL, "Done.")
    own = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    eos = [tokenizer.eos_token_id]
    assert own == [t for answer in model.answers for t in answer + eos]
    logged = [p for p, m in zip(output.response_logprobs, output.response_mask, strict=True) if m]
    assert logged == [-float(token) for token in own]
    assert output.prompt_ids == model.prompts[0]
    assert model.prompts[1] == (output.prompt_ids + output.response_ids)[: len(model.prompts[1])]
    text = tokenizer.decode(output.prompt_ids + output.response_ids)
    # The tokens equal the template of the whole conversation.
    assert text.endswith(
        f"<|im_start|>assistant\n{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\nout\n\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\nDone.<|im_end|>"
    )
    score, info, sample = await graded(config(), tokenizer, output)
    assert score == 0.5 and info["agent_ended_done"] == 1.0
    assert (info["agent_turns"], info["agent_commands"]) == (2.0, 1.0)
    assert info["agent_untrained_tokens"] == 0.0 and sample["tokens"] == len(own)
    assert sample["extra"]["agent"]["said"] == "bye"


async def test_each_conversation_is_an_output_and_the_longest_comes_last(config, tokenizer):
    run = config()
    with_another(run)
    found, model = await outputs(run, tokenizer, "Short.", CALL, "Done.")
    assert [len(output.prompt_ids) for output in found] == [*map(len, model.prompts[:2])]
    n = sum(len(answer) + 1 for answer in model.answers)
    assert sum(sum(output.response_mask) for output in found) == n
    assert [output.extra_fields["agent_work"] is None for output in found] == [True, False]
    only, _ = await outputs(config("coding.agent.train=main"), tokenizer, "Short.", CALL, "Done.")
    assert len(only) == 1
    _, info, _ = await graded(run, tokenizer, only[0])
    assert info["agent_untrained_tokens"] == len(model.answers[0]) + 1
    only, _ = await outputs(config("coding.agent.train=tools"), tokenizer, "Short.", CALL, "Done.")
    assert [len(output.prompt_ids) for output in only] == [len(model.prompts[1])]


def twice(changes: str = "") -> str:
    """Return an agent that asks twice in one conversation."""
    return (
        AGENT.partition("TOOLS =")[0]
        + "m = [{'role': 'user', 'content': 'Do it.'}]\nfor _ in range(2):\n"
        + "    m.append(post('/chat/completions', {'messages': m})['choices'][0]['message'])\n"
        + changes
        + "    m.append({'role': 'user', 'content': 'on'})\n"
    )


def with_another(run) -> None:
    """Let the agent begin with another conversation."""
    first, _, rest = AGENT.replace("RUN", SHELL).partition("TOOLS =")
    text = f"{first}\n{ANOTHER}\nTOOLS ={rest}"
    Path(run.coding.agent.folder, "my_agent.py").write_text(text)


async def test_a_reply_that_was_cut_off_is_closed_before_the_next_message(config, tokenizer):
    run = config("coding.agent.reply_tokens=3")
    Path(run.coding.agent.folder, "my_agent.py").write_text(twice())
    (output,), model = await outputs(run, tokenizer, "Done. Done. Done.", "Done.")
    assert output.response_mask[:5] == [1, 1, 1, 0, 0]
    assert output.response_ids[3] == tokenizer.eos_token_id
    told = tokenizer.decode(output.response_ids[3 : len(model.prompts[1]) - len(model.prompts[0])])
    assert told == "<|im_end|>\n<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n"


async def test_what_an_agent_adds_to_a_reply_is_a_message_of_its_own(config, tokenizer):
    run = config()
    agent = twice("    m[-1]['content'] += ' out'\n")
    Path(run.coding.agent.folder, "my_agent.py").write_text(agent)
    (output,), model = await outputs(run, tokenizer, "Done.", "Done.")
    assert tokenizer.decode(output.response_ids) == (
        "Done.<|im_end|>\n<|im_start|>assistant\nout<|im_end|>\n<|im_start|>user\non<|im_end|>\n"
        "<|im_start|>assistant\nDone.<|im_end|>"
    )
    assert sum(output.response_mask) == sum(len(answer) + 1 for answer in model.answers)


async def test_an_agent_that_never_asks_leaves_its_sample_out_and_says_what_it_printed(
    config, tokenizer
):
    run = config("coding.agent.command='echo no key >&2; exit 2'")
    with pytest.raises(HarborError, match="no key"):
        await outputs(run, tokenizer, "Done.")
    (lost,) = read_ungradable(Path(run.coding.run_dir))
    assert (lost.problem, lost.error) == ("mine/1", "HarborError") and "crashed" in lost.reason


async def test_a_rollout_that_fails_in_any_way_is_no_crash_of_the_agent(config, tokenizer):
    class Gone(Model):
        async def generate(self, **_):
            raise RuntimeError("the actor\ndied")

    run = config()
    with pytest.raises(GenerationError, match="the actor died"):
        await outputs(run, tokenizer, model=Gone(tokenizer))
    (lost,) = read_ungradable(Path(run.coding.run_dir))
    assert lost.error == "GenerationError"


@pytest.mark.parametrize(("wrong", "named"), CASES["bad input"])
def test_bad_input_is_named(config, wrong, named):
    from coding_model_project.launch.checks.checks import check_values

    roomy = "actor_rollout_ref.model.path=own/model"
    with pytest.raises(ConfigError, match=named):
        check_values(config(roomy, wrong))


@pytest.mark.parametrize(("wrong", "named"), CASES["agents cannot"])
def test_agents_that_cannot_be_are_named(config, wrong, named):
    from coding_model_project.launch.checks.checks import check_values

    roomy = "actor_rollout_ref.model.path=own/model"
    with pytest.raises(ConfigError, match=named):
        check_values(config(roomy, "coding.agent.command=null", *wrong))


async def test_verl_rewards_several_outputs_by_the_last_and_stores_all_of_them(config, tokenizer):
    import torch
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    from coding_model_project.verl_ext.rewards.reward_manager import CodeRewardManager
    from coding_model_project.verl_ext.trainers.batches import final_keys

    run = config()
    with_another(run)
    found, _ = await outputs(run, tokenizer, "Short.", CALL, "Done.")
    manager = CodeRewardManager(run, tokenizer)

    class Remote:
        async def remote(self, data):
            return await manager.run_single(data)

    class Worker:
        reward_loop_worker_handles = [type("Handle", (), {"compute_score": Remote()})()]
        processor = None
        mm_processor_kwargs: dict = {}

        def __getattr__(self, name):
            return getattr(AgentLoopWorker, name).__get__(self)

    await AgentLoopWorker._compute_score(Worker(), found, kwargs=ROW)
    assert found[-1].reward_score == 0.5
    found[0].reward_score = found[-1].reward_score
    found[0].extra_fields["reward_extra_info"] = found[-1].extra_fields["reward_extra_info"]
    stored = list_of_dict_to_tensordict([output.as_dict() for output in found])
    assert torch.equal(stored["responses"][1], torch.tensor(found[1].response_ids))
    assert stored["rm_scores"][0].sum() == stored["rm_scores"][1].sum() == 0.5
    assert final_keys(["u_0_0", "v_1_0", "u_0_1", "u_1_0"]) == ["u_0_1", "v_1_0", "u_1_0"]
