"""Episodes of the bash agent in verl's agent loop: a scripted model, real rooms, real verifiers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.episodes.bash import NOT_RUN, Calls, opening
from coding_model_project.episodes.tool_calls import BASH_TOOL, ToolCall, bash_call
from coding_model_project.errors import ConfigError, GenerationError
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.runs.rollouts import read_ungradable
from coding_model_project.types import Problem
from tests.processes import below
from tests.tables import tables
from tests.text_cases import sources
from tests.unit.harbor.folders import folder
from tests.unit.verl_ext.test_repair_loop import ROW, Model, a_loop, graded

CASES = tables("verl_ext")

SOURCES = sources(__file__)

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

PROBLEM = Problem(id="mine/1", split="train", statement="", tests=(), language="bash", task="task")
CHECK = SOURCES["check"]


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


@pytest.fixture(scope="module")
def tokenizer():
    from coding_model_project.synthetic.tiny_model import train_tokenizer

    return train_tokenizer(iter([bash("echo 0.5 > answer"), "exit code 0"]), 300)


@pytest.fixture
def config(tmp_path):
    """Return a function from overrides to the configuration of `recipes.harbor`."""
    from coding_model_project.verl_ext.trainers.grpo import plain

    folder(tmp_path / "task", tests__test_sh=CHECK)
    (tmp_path / "task" / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
    write_problems(tmp_path / "problems.jsonl", [PROBLEM])
    overrides = [
        "hardware=cpu",
        f"coding.run_dir={tmp_path}",
        f"coding.problems=[{tmp_path}/problems.jsonl]",
        "coding.bash.reply_tokens=60",
        "data.max_response_length=600",
        "data.max_prompt_length=300",
        "actor_rollout_ref.rollout.max_model_len=900",
        "coding.reward.kind=dense",
    ]
    return lambda *more: plain(compose_recipe("harbor", [*overrides, *more]))


async def episode(config, tokenizer, *replies, model=None):
    """Run an episode, and return its output and the model."""
    from coding_model_project.verl_ext.loops import bash_loop

    bash_loop.BashLoop.places.clear()
    model = model or Model(tokenizer, *replies)
    try:
        output = await a_loop(bash_loop.BashLoop, config, model).run({"logprobs": True}, **ROW)
        return output, model
    finally:
        for place in bash_loop.BashLoop.places.values():
            await place.grader.__aexit__(None, None, None)


async def test_what_the_shell_said_is_not_trained_on_and_the_verifier_rewards(config, tokenizer):
    replies = bash("echo 0.5 > answer"), bash("cat answer; exit 3"), "Done."
    output, model = await episode(config(), tokenizer, *replies)
    own = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    told = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if not m]
    eos = [tokenizer.eos_token_id]
    assert own == [t for answer in model.answers for t in answer + eos]
    assert "exit code 0<|im_end|>" in tokenizer.decode(told)
    assert "exit code 3\n0.5<|im_end|>" in tokenizer.decode(told)
    assert model.prompts[-1] == (output.prompt_ids + output.response_ids)[: len(model.prompts[-1])]
    assert tokenizer.decode(output.prompt_ids).startswith("<|im_start|>system\nYou do a task")

    score, info, sample = await graded(config(), tokenizer, output)
    assert (score, info["acc"], info["bash_ended_done"]) == (0.5, 0.0, 1.0)
    assert (info["bash_commands"], info["bash_failed_commands"]) == (2.0, 1.0)
    assert sample["tokens"] == len(own)
    commands = [reply["command"] for reply in sample["extra"]["replies"]]
    assert commands == ["echo 0.5 > answer\n", "cat answer; exit 3\n", None]
    sparse, _, _ = await graded(config("coding.reward.kind=sparse"), tokenizer, output)
    assert sparse == 0.0


@pytest.mark.parametrize(
    ("overrides", "ending"),
    [
        (["coding.bash.turns=1"], "turns"),
        (["data.max_response_length=90"], "context"),
        (["coding.bash.reply_tokens=8"], "tokens"),
    ],
)
async def test_a_limit_is_an_ending_and_no_outage(config, tokenizer, overrides, ending):
    run = config(*overrides)
    output, _ = await episode(run, tokenizer, bash("echo 1 > answer"), "Done.")
    assert len(output.response_ids) <= run.data.max_response_length
    assert set(output.response_mask) == {1}
    score, info, _ = await graded(run, tokenizer, output)
    assert info[f"bash_ended_{ending}"] == 1.0
    assert score == (0.0 if ending == "tokens" else 1.0)  # half a command is not run


async def test_in_form_tools_the_schema_is_in_the_prompt_and_outcomes_are_the_tools(config):
    from coding_model_project.synthetic.tiny_model import train_tokenizer

    first, wrong = bash_call("echo 0.5 > answer"), ToolCall(name="python", arguments="{}")
    tokenizer = train_tokenizer(iter([first.text(), "exit code 0"]), 300, tools=True)
    run = config("coding.bash.calls=tools", "data.max_prompt_length=600")
    replies = f"I do.\n{first.text()}", wrong.text() + bash_call("rm answer").text(), "Done."
    output, model = await episode(run, tokenizer, *replies)
    own = [t for t, m in zip(output.response_ids, output.response_mask, strict=True) if m]
    eos = [tokenizer.eos_token_id]
    assert own == [t for answer in model.answers for t in answer + eos]
    # By its last reply the model has seen exactly the template of the whole conversation.
    asked = opening("Do it.", Calls.tools)
    second = [wrong.openai("2"), bash_call("rm answer").openai("3")]
    said_so_far = [
        {"role": "assistant", "content": "I do.", "tool_calls": [first.openai("1")]},
        {"role": "tool", "content": "exit code 0"},
        {"role": "assistant", "content": "", "tool_calls": second},
        {"role": "tool", "content": "error: no tool 'python'; the only one is bash"},
        {"role": "tool", "content": NOT_RUN},
    ]
    whole = tokenizer.apply_chat_template(
        asked + said_so_far, tools=[BASH_TOOL], tokenize=False, add_generation_prompt=True
    )
    shown = tokenizer.decode(model.prompts[-1])
    assert shown == whole.replace("</tool_call>\n<tool_call>", "</tool_call><tool_call>")

    score, info, sample = await graded(run, tokenizer, output)
    assert (score, info["bash_commands"], info["bash_ended_done"]) == (0.5, 1.0, 1.0)
    told = sample["extra"]["replies"]
    assert [reply["command"] for reply in told] == ["echo 0.5 > answer", None, None]
    assert told[1]["observation"].startswith("error: no tool")
    assert all(reply["reply_s"] > 0 for reply in told)


async def test_an_opening_longer_than_a_prompt_is_an_error_and_not_cut(config, tokenizer):
    run = config("data.max_prompt_length=40")
    with pytest.raises(ConfigError, match=r"data\.max_prompt_length=40: an episode's opening has"):
        await episode(run, tokenizer, "Done.")


async def test_a_killed_room_leaves_the_sample_out_and_nothing_running(config, tokenizer):
    class Killer(Model):
        async def generate(self, **given):
            for process in below("keeper"):
                os.kill(process.pid, signal.SIGKILL)
            return await super().generate(**given)

    run = config()
    with pytest.raises(EnvironmentFailed):
        await episode(run, tokenizer, model=Killer(tokenizer, bash("echo 1 > answer"), "Done."))
    (lost,) = read_ungradable(Path(run.coding.run_dir))
    assert (lost.problem, lost.sample, lost.error) == ("mine/1", "u_0", "EnvironmentFailed")
    assert not below("keeper")


async def test_a_rollout_that_cannot_be_reached_is_no_wrong_answer(config, tokenizer):
    class Gone(Model):
        async def generate(self, **_):
            raise ConnectionError("refused")

    run = config()
    with pytest.raises(GenerationError, match="refused"):
        await episode(run, tokenizer, model=Gone(tokenizer))
    (lost,) = read_ungradable(Path(run.coding.run_dir))
    assert lost.error == "GenerationError"


@pytest.mark.parametrize(("wrong", "named"), CASES["bad_input_is_named"])
def test_bad_input_is_named(config, wrong, named):
    from coding_model_project.launch.checks.checks import check_values

    roomy = "actor_rollout_ref.model.path=own/model"  # the tiny model's context is 512
    check_values(config(roomy))
    with pytest.raises(ConfigError, match=named):
        check_values(config(roomy, wrong))


def test_a_template_without_tools_is_refused_for_tool_calls(config, tmp_path):
    from coding_model_project.launch.checks import episode_checks
    from coding_model_project.synthetic.tiny_model import CHAT_TEMPLATE, TOOLS_CHAT_TEMPLATE

    model = f"actor_rollout_ref.model.path={tmp_path}/model"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    episode_checks.check_template(config(model))
    with pytest.raises(ConfigError, match="takes no tools"):
        episode_checks.check_template(config(model, "coding.bash.calls=tools"))
    (tmp_path / "model" / "chat_template.jinja").write_text(TOOLS_CHAT_TEMPLATE)
    episode_checks.check_template(config(model, "coding.bash.calls=tools"))


def test_problems_without_a_task_are_refused(config):
    from coding_model_project.launch.checks import episode_checks
    from tests.unit.verl_ext.test_repair_loop import PROBLEM as WITH_TESTS

    with pytest.raises(ConfigError, match=r"mine/1 names no Harbor task.*the bash agent"):
        episode_checks.check_tasks(config(), [WITH_TESTS])
    with pytest.raises(ConfigError, match=r"mine/1 names no Harbor task.*coding.agent"):
        episode_checks.check_tasks(config("coding.agent.command=true"), [WITH_TESTS])
