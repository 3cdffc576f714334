"""Agents that train through the gateway, in verl's own trainer: the page's, some of which go wrong."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from coding_model_project.episodes.bash import Calls
from coding_model_project.grading.prompts import Message
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.rollouts import read_all_rollouts, read_ungradable
from coding_model_project.synthetic.tinyshell import as_text, trace
from coding_model_project.synthetic.tinyshell_tasks import ShellTask
from recipes.harbor.__main__ import RECIPE
from tests import docs
from tests.agent_recipes import installed
from tests.end_to_end.conftest import N_PROBLEMS
from tests.end_to_end.shell_world import taught_model
from tests.end_to_end.started import logged
from tests.end_to_end.test_harbor_training import prepared
from tests.tables import tables

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.sandbox, pytest.mark.timeout(600)]

PAGE = docs.ROOT / "docs" / "harbor-agents.md"
N_SAMPLES = 2 * N_PROBLEMS
GOES_WRONG = Path(__file__).with_name("goes_wrong.sh").read_text()
"""Of the first 8 agents two each crash, outstay their time, begin another conversation, and do well."""
SYSTEM = "You solve a task in a Linux shell. Call bash with one command at a time."
TOOLS = tables("agent_tools")
"""Descriptions of bash that agents send."""
SHORT = f"""\
agent:
  system_template: {SYSTEM}
  instance_template: "{{{{task}}}}"
  step_limit: 3
  cost_limit: 0
model:
  observation_template: "exit code {{{{output.returncode}}}}\\n{{{{output.output}}}}"
  format_error_template: "{{{{error}}}}"
"""
"""mini-swe-agent's own prompts have some 2,000 tokens, more than the tiny model reads."""


def as_mini_swe_agent(task: ShellTask) -> list[Message]:
    """Return an episode with mini-swe-agent's prompt, description of its tool, and last command."""
    commands = [*task.commands, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    *episode, _, _ = trace(task, commands, Calls.tools)
    return as_text([{"role": "system", "content": SYSTEM}, *episode[1:]], [TOOLS["mini-swe-agent"]])


def as_pi(task: ShellTask) -> list[Message]:
    """Return an episode with pi's prompt, which ends with a date and a folder, and its bash tool."""
    _, *episode = trace(task, task.commands, Calls.tools)
    where = f"{SYSTEM}\nCurrent date: 2026-11-28\nCurrent working directory: /app"
    return as_text([{"role": "system", "content": where}, *episode], [TOOLS["pi"]])


AGENTS = {
    "mini-swe-agent": (
        as_mini_swe_agent,
        "--exit-immediately",
        "--exit-immediately -c /opt/agent/short.yaml",
    ),
    "pi": (as_pi, "pi --provider", f"pi --tools bash --system-prompt '{SYSTEM}' --provider"),
}
"""For each agent: demonstrations, and the change of its recipe that gives it a short prompt."""


def steps_of_a_run(path: Path, model: Path, command: str, *more: str) -> list[dict]:
    """Return the metrics of two steps with an agent whose files are in `path/agent`."""
    overrides = [
        *prepared(path),
        f'coding.agent.command="{command}"',
        f"coding.agent.folder={path}/agent",
        "coding.agent.reply_tokens=48",
        "data.max_prompt_length=600",
        "data.max_response_length=400",
        f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.rollout.max_model_len=1000",
        *more,
    ]
    carry_out(RECIPE, compose_recipe("harbor", overrides))
    return [row["data"] for row in logged(path / "run") if "agent/turns" in row["data"]]


def test_a_run_trains_on_what_the_servers_counted_whatever_agents_do(tmp_path, in_ray, tool_caller):
    (block,) = [b for b in docs.blocks(PAGE) if b.text.startswith("# my_agent.py\n")]
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "my_agent.py").write_text(block.text)
    (tmp_path / "agent" / "agent.sh").write_text(GOES_WRONG)
    (tmp_path / "begun").mkdir()
    command = shlex.join(["bash", "agent.sh", sys.executable, str(tmp_path / "begun")])
    steps = steps_of_a_run(tmp_path, tool_caller, command, "coding.agent.total_s=25")
    assert [step["training/global_step"] for step in steps] == [1, 2]
    assert not list(read_ungradable(tmp_path / "run"))
    for step in steps:
        assert step["judge/infra_rate"] == 0.0
        assert (
            step["rollout/trained_tokens"] + step["agent/untrained_tokens"]
            == step["rollout/generated_tokens"]
            > 0
        )
        ended = {key: value for key, value in step.items() if "agent/ended_" in key}
        assert sum(ended.values()) == pytest.approx(1)
        assert 1 <= step["agent/turns"] <= 5 and 1 <= step["agent/conversations"] < 2
    samples = list(read_all_rollouts(tmp_path / "run"))
    assert len(samples) == 2 * N_SAMPLES
    works = [sample.extra["agent"] for sample in samples]
    # On a slow machine an agent's time may end while it waits for a reply.
    assert {work["ending"] for work in works if work["untrained_tokens"]} <= {"time"}
    assert {work["ending"] for work in works} >= {"done", "crashed", "time"}
    assert {work["exit_code"] for work in works if work["ending"] == "crashed"} == {7}
    assert max(work["conversations"] for work in works) == 2
    worked = [sample for sample in samples if sample.extra["agent"]["commands"]]
    assert worked and all("exit code" in sample.completion for sample in worked)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_that_people_run_trains_in_rooms_unmodified(tmp_path, in_ray, agent):
    folder = installed(agent, tmp_path / "agents")
    shows, was, short = AGENTS[agent]
    script = (folder / "run.sh").read_text()
    assert was in script
    (folder / "train.sh").write_text(script.replace(was, short))
    (folder / "short.yaml").write_text(SHORT)
    (tmp_path / "agent").symlink_to(folder)
    taught_model(tmp_path / "model", shows, steps=400)
    steps = steps_of_a_run(
        tmp_path,
        tmp_path / "model",
        "bash /opt/agent/train.sh",
        "coding.agent.place=room",
        "coding.agent.total_s=300",
        "data.max_prompt_length=700",
        "data.max_response_length=300",
    )
    assert [step["training/global_step"] for step in steps] == [1, 2]
    names = ("rollout/trained_tokens", "agent/untrained_tokens", "rollout/generated_tokens")
    for step in steps:
        print(agent, {name: step[name] for name in (*names, "agent/turns", "agent/conversations")})
        trained, untrained, generated = (step[name] for name in names)
        assert step["judge/infra_rate"] == 0.0
        assert trained + untrained == generated > 0
    works = [sample.extra["agent"] for sample in read_all_rollouts(tmp_path / "run")]
    assert len(works) == 2 * N_SAMPLES and all(work["turns"] >= 1 for work in works)
    assert max(step["critic/score/mean"] for step in steps) > 0
