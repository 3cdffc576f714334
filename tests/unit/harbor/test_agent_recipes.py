"""The agents that people run, installed and started as their page says, on a real task in a room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coding_model_project.episodes.tool_calls import ToolCall
from coding_model_project.harbor.agent_config import AgentConfig, AgentPlace
from tests import docs
from tests.unit.harbor.gateway_fakes import Scripted
from tests.unit.harbor.test_gateway_agents import trial

pytestmark = [pytest.mark.sandbox, pytest.mark.soak, pytest.mark.timeout(1800)]

PAGE = docs.ROOT / "docs" / "agent-recipes.md"
COMMAND = "echo 1 > answer"
CALLS = {
    "mini-swe-agent": ("bash", {"command": COMMAND}),
    "pi": ("bash", {"command": COMMAND}),
    "opencode": ("bash", {"command": COMMAND, "description": "Answer"}),
    "codex": ("exec_command", {"cmd": COMMAND}),
    "Claude Code": ("Bash", {"command": COMMAND, "description": "Answer"}),
    "Qwen Code": ("run_shell_command", {"command": COMMAND, "is_background": False}),
    "OpenHands SDK": ("terminal", {"command": COMMAND}),
}
"""Each agent's shell tool."""
LAST = {
    "mini-swe-agent": ("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
    "OpenHands SDK": ("finish", {"message": "Done."}),
}
"""The calls that end an agent; the others end with a reply without one."""


class WithTools(Scripted):
    """A policy that follows its script where it has tools, and gives titles and the like one line."""

    async def generate(self, prompt, *, max_tokens, stop):
        if chr(prompt[0]) == "(":
            return await super().generate(prompt, max_tokens=max_tokens, stop=stop)
        aside = Scripted("A title")
        made = await aside.generate(prompt, max_tokens=max_tokens, stop=stop)
        self.generated.append(made)
        return made


def recipe(agent: str) -> tuple[str, str]:
    """The install lines and the script of a page's section."""
    section = PAGE.read_text().split(f"\n## {agent}\n")[1].split("\n## ")[0]
    install, script = section.split("```text\n")[1:3]
    return install.split("```")[0], script.split("```")[0]


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """Installs an agent once, into $AGENT_FOLDERS/NAME if that is set, and returns its folder."""
    root = Path(os.environ.get("AGENT_FOLDERS") or tmp_path_factory.mktemp("agents"))
    tools = root / "tools"

    def install(agent: str) -> Path:
        place = root / agent.replace(" ", "-")
        folder = place / "agent"
        lines, script = recipe(agent)
        if not (place / "done").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            if not (tools / "bin" / "uv").exists():
                subprocess.run([sys.executable, "-m", "venv", tools], check=True)
                subprocess.run([tools / "bin" / "pip", "install", "-q", "uv"], check=True)
            env = {**os.environ, "PATH": f"{tools}/bin:{os.environ['PATH']}"}
            made = subprocess.run(
                ["bash", "-e"], cwd=place, env=env, input=lines, text=True, capture_output=True
            )
            if made.returncode:
                pytest.skip(f"{agent} cannot be installed here: {lines}{made.stderr[-800:]}")
            (place / "done").touch()
        (folder / "run.sh").write_text(script)
        return folder

    return install


@pytest.mark.parametrize("agent", CALLS)
def test_an_agent_works_in_a_room_as_its_recipe_says(tmp_path, installed, agent):
    folder = installed(agent)
    config = AgentConfig(
        command="bash /opt/agent/run.sh", folder=str(folder), place=AgentPlace.room, total_s=300
    )
    texts = [
        ToolCall(name=name, arguments=json.dumps(arguments)).text()
        for name, arguments in (CALLS[agent], *([LAST[agent]] if agent in LAST else []))
    ]
    policy = WithTools(f"I write it.\n{texts[0]}", texts[1] if agent in LAST else "Done.")
    outcome, work, _ = trial(tmp_path, config, policy)
    conversations = work.session.recorder.trajectories(99)
    openings = [len(one.prompt) for one in conversations]
    print(agent, outcome.rewards, work.ending, work.exit_code, "openings", openings)
    assert (work.ending, outcome.rewards) == ("done", {"reward": 1.0}), (outcome, work)
    made = sum(len(one.ids) for one in policy.generated)
    assert sum(one.trained for one in conversations) + work.session.n_undelivered == made
    assert len(conversations[-1].spans) == 2, "the two replies are one conversation"
