"""The agents that people run, installed and started as their page says, on a real task in a room."""

from __future__ import annotations

import json
import shutil

import pytest

from coding_model_project.episodes.tool_calls import ToolCall
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.gateway.gateway_agent import GatewayAgent
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import Session
from coding_model_project.harbor.harbor_config import AgentConfig, AgentPlace
from coding_model_project.harbor.trial import Trials
from tests.agent_recipes import installed
from tests.tables import tables
from tests.unit.harbor.folders import folder
from tests.unit.harbor.gateway_fakes import ROOMY, CharCodec, Scripted
from tests.unit.harbor.places import PROGRAMS, run_in_containers, write_image
from tests.unit.harbor.test_gateway_agents import CHECK, trial

CASES = tables("harbor")

pytestmark = [pytest.mark.sandbox, pytest.mark.soak, pytest.mark.timeout(1800)]

COMMAND = "echo 1 > answer"
CALLS = CASES["calls"]
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


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Where agents are installed."""
    return tmp_path_factory.mktemp("agents")


@pytest.mark.parametrize("agent", CALLS)
def test_an_agent_works_in_a_room_as_its_recipe_says(tmp_path, folders, agent):
    home = installed(agent, folders)
    config = AgentConfig(
        command="bash /opt/agent/run.sh", folder=str(home), place=AgentPlace.room, total_s=300
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


def test_terminus_2_works_in_a_container_from_outside(tmp_path, folders):
    home = installed("Terminus 2", folders)
    task = folder(tmp_path / "task", tests__test_sh=CHECK)
    (task / "environment" / "Dockerfile").unlink(missing_ok=True)
    programs = [*PROGRAMS, "tmux", "uname", "env", "date"]
    write_image(task / "environment", "ENV LANG=C.UTF-8\n", programs)
    root = task / "environment" / "root"
    shutil.copytree("/usr/lib/locale/C.utf8", root / "usr/lib/locale/C.utf8")
    (root / "tmp").mkdir()
    writes = [{"keystrokes": f"{COMMAND}\n", "duration": 1.0}]
    replies = [
        json.dumps({"analysis": "-", "plan": "-", "commands": commands, "task_complete": done})
        for commands, done in ((writes, False), ([], True), ([], True))
    ]
    policy = Scripted(*replies)
    config = AgentConfig(command="bash run.sh", folder=str(home), total_s=900)

    async def run(environments):
        async with Gateway(max_bytes=1 << 20) as gateway:
            agent = GatewayAgent(
                config=config,
                gateway=gateway,
                begin=lambda environment, user: Session(
                    policy, CharCodec(), ROOMY, environment=environment, user=user
                ),
            )
            return await Trials(environments).run(load_task(task), agent), agent.works[0]

    outcome, work = run_in_containers(run)
    (only,) = work.session.recorder.trajectories(99)
    print("Terminus 2", outcome.rewards, work.ending, "opening", len(only.prompt))
    assert (work.ending, outcome.rewards) == ("done", {"reward": 1.0}), (outcome, work)
    assert only.trained == sum(len(made.ids) for made in policy.generated) and len(only.spans) == 3
