"""Agents that train through the gateway, in verl's own trainer: the page's, some of which go wrong."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.grading.prompts import Message, PromptStyle
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.run import carry_out
from coding_model_project.runs.rollouts import read_all_rollouts
from coding_model_project.runs.ungradable import read_ungradable
from coding_model_project.synthetic.tinyshell import trace
from coding_model_project.synthetic.tinyshell.shell_files import as_text, write_shell_task
from coding_model_project.synthetic.tinyshell.shell_generator import ShellTask
from recipes.harbor.__main__ import RECIPE
from tests import docs
from tests.agent_recipes import installed
from tests.end_to_end.conftest import N_PROBLEMS
from tests.end_to_end.shell_world import TASKS, taught_model

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.sandbox, pytest.mark.timeout(600)]

PAGE = docs.ROOT / "docs" / "harbor-agents.md"
N_SAMPLES = 2 * N_PROBLEMS
GOES_WRONG = """\
python=$1
n=0
while [ $n -lt 8 ] && ! mkdir $2/$n 2>/dev/null; do n=$((n + 1)); done
[ $n -lt 8 ] || exec $python my_agent.py
case $((n % 4)) in
0) $python my_agent.py; exit 7 ;;
1) $python my_agent.py; trap '' TERM; setsid sleep 1234 & sleep 1235 ;;
2) printf '%s' '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}' |
   curl -s -H "Authorization: Bearer $OPENAI_API_KEY" -d @- $OPENAI_BASE_URL/chat/completions
   exec $python my_agent.py ;;
*) exec $python my_agent.py ;;
esac
"""
"""Of the first 8 agents two each crash, outstay their time, begin another conversation, and do well."""
SYSTEM = "You solve a task in a Linux shell. Call bash with one command at a time."
MINI_TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Execute a bash command",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The bash command to execute"}
            },
            "required": ["command"],
        },
    },
}
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
PI_TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Execute a bash command in the current working directory. Returns stdout and "
        "stderr. Output is truncated to last 2000 lines or 50KB (whichever is hit first). If truncated, "
        "full output is saved to a temp file. Optionally provide a timeout in seconds.",
        "parameters": {
            "type": "object",
            "required": ["command"],
            "properties": {
                "command": {"type": "string", "description": "Bash command to execute"},
                "timeout": {
                    "type": "number",
                    "description": "Timeout in seconds (optional, no default timeout)",
                },
            },
        },
        "strict": False,
    },
}


def as_mini_swe_agent(task: ShellTask) -> list[Message]:
    """Return an episode with mini-swe-agent's prompt, description of its tool, and last command."""
    commands = [*task.commands, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    *episode, _, _ = trace(task, commands, Calls.tools)
    return as_text([{"role": "system", "content": SYSTEM}, *episode[1:]], [MINI_TOOL])


def as_pi(task: ShellTask) -> list[Message]:
    """Return an episode with pi's prompt, which ends with a date and a folder, and its bash tool."""
    _, *episode = trace(task, task.commands, Calls.tools)
    where = f"{SYSTEM}\nCurrent date: 2026-11-28\nCurrent working directory: /app"
    return as_text([{"role": "system", "content": where}, *episode], [PI_TOOL])


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
    problems = [write_shell_task(path, task, str(n)) for n, task in enumerate(TASKS)]
    write_problems(path / "problems.jsonl", problems)
    write_rows(path / "rows.parquet", rl_rows(problems, PromptStyle.fenced), trains=True)
    overrides = [
        "hardware=cpu",
        f"coding.run_dir={path}/run",
        "coding.dataset=null",
        f"coding.problems=[{path}/problems.jsonl]",
        "coding.min_memory_gb=1",
        f'coding.agent.command="{command}"',
        f"coding.agent.folder={path}/agent",
        "coding.agent.total_s=60",
        "coding.agent.reply_tokens=48",
        f"data.train_files={path}/rows.parquet",
        f"data.val_files={path}/rows.parquet",
        f"data.train_batch_size={N_PROBLEMS}",
        "data.max_prompt_length=600",
        "data.max_response_length=400",
        f"actor_rollout_ref.model.path={model}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.n=2",
        "actor_rollout_ref.rollout.max_model_len=1000",
        "trainer.total_training_steps=2",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "trainer.save_freq=-1",
        *more,
    ]
    carry_out(RECIPE, compose_recipe("harbor", overrides))
    lines = map(json.loads, (path / "run" / "metrics.jsonl").read_text().splitlines())
    return [row["data"] for row in lines if "agent/turns" in row["data"]]


def test_a_run_trains_on_what_the_servers_counted_whatever_agents_do(tmp_path, in_ray, tool_caller):
    (block,) = [b for b in docs.blocks(PAGE) if b.text.startswith("# my_agent.py\n")]
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "my_agent.py").write_text(block.text)
    (tmp_path / "agent" / "agent.sh").write_text(GOES_WRONG)
    (tmp_path / "begun").mkdir()
    command = shlex.join(["bash", "agent.sh", sys.executable, str(tmp_path / "begun")])
    steps = steps_of_a_run(tmp_path, tool_caller, command)
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
