"""Agents at the gateway, on real tasks in real rooms: how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from coding_model_project.episodes.tool_calls import bash_call
from coding_model_project.errors import GenerationError, HarborError
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.gateway.gateway_agent import GatewayAgent
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import Session
from coding_model_project.harbor.harbor_config import AgentConfig, AgentPlace
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from tests import docs
from tests.processes import below
from tests.tables import tables
from tests.text_cases import sources
from tests.unit.harbor.folders import solvable
from tests.unit.harbor.gateway_fakes import ROOMY, CharCodec, Scripted

CASES = tables("harbor")

SOURCES = sources(__file__)

pytestmark = [pytest.mark.sandbox, pytest.mark.xdist_group("gateway agents")]
"""Runs in one process, because tests search the whole machine for an agent's remains."""

CHECK = SOURCES["check"]
AGENT = SOURCES["agent"]
SHELL = 'said = post("/shell", {"command": command})["stdout"]'
ITSELF = "import subprocess; said = subprocess.getoutput(command)"


def trial(tmp_path: Path, config: AgentConfig, *replies, toml="", limits=ROOMY):
    """The outcome of a task, the work of the agent, and the policy that it talked to."""
    task = solvable(tmp_path / "task", toml, tests__test_sh=CHECK)
    policy = replies[0] if isinstance(replies[0], Scripted) else Scripted(*replies)

    async def run():
        agent_folder = Path(config.folder) if config.place is AgentPlace.room else None
        async with (
            EmbeddedEnvironments(agent_folder) as environments,
            Gateway(max_bytes=1 << 20) as gateway,
        ):
            agent = GatewayAgent(
                config=config,
                gateway=gateway,
                begin=lambda environment, user: Session(
                    policy, CharCodec(), limits, environment=environment, user=user
                ),
            )
            outcome = await Trials(environments).run(load_task(task), agent)
            return outcome, agent.works[0]

    outcome, work = asyncio.run(run())
    return outcome, work, policy


def agent_in(tmp_path: Path, run: str) -> Path:
    home = tmp_path / "agent"
    home.mkdir(exist_ok=True)
    (home / "my_agent.py").write_text(AGENT.replace("RUN", run))
    return home


WORKS = [bash_call("echo 0.5 > answer; echo out").text(), "Done."]


def test_an_agent_of_this_machine_works_in_the_room_by_the_shell(tmp_path):
    home = agent_in(tmp_path, SHELL)
    config = AgentConfig(command=f"{sys.executable} my_agent.py", folder=str(home))
    outcome, work, policy = trial(tmp_path, config, *WORKS)
    assert (work.ending, work.said) == ("done", "bye"), work
    assert outcome.rewards == {"reward": 0.5}
    assert len(work.session.commands) == 1
    (only,) = work.session.recorder.trajectories(9)
    assert only.trained == sum(len(made.ids) for made in policy.generated)
    assert "<tool>out\n\n<assistant>Done." in "".join(map(chr, only.response))


def test_an_agent_in_the_room_reaches_the_gateway_and_nothing_else(tmp_path):
    home = agent_in(tmp_path, ITSELF)
    reach = "bash -c ': < /dev/tcp/127.0.0.1/22'; touch /opt/agent/x"
    replies = [bash_call(reach).text(), *WORKS]
    config = AgentConfig(
        command="python3 /opt/agent/my_agent.py", folder=str(home), place=AgentPlace.room
    )
    outcome, work, _ = trial(tmp_path, config, *replies)
    assert (work.ending, work.said) == ("done", "bye"), work
    assert outcome.rewards == {"reward": 0.5}
    (only,) = work.session.recorder.trajectories(9)
    said = "".join(map(chr, only.response))
    assert "Connection refused" in said and "Read-only file system" in said


def command_lines() -> list[str]:
    """Return the command lines of all processes."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.parametrize("place", list(AgentPlace))
def test_a_room_that_is_lost_is_no_ending(tmp_path, place):
    class Killer(Scripted):
        async def generate(self, *args, **kwargs):
            for process in below("keeper"):
                os.kill(process.pid, signal.SIGKILL)
            return await super().generate(*args, **kwargs)

    home = agent_in(tmp_path, SHELL if place is AgentPlace.host else ITSELF)
    python = "python3 /opt/agent/" if place is AgentPlace.room else f"{sys.executable} "
    config = AgentConfig(command=f"{python}my_agent.py", folder=str(home), place=place)
    outcome, work, _ = trial(tmp_path, config, Killer(*WORKS))
    assert isinstance(outcome.error, EnvironmentFailed) and outcome.steps[0].rewards is None
    assert work.ending is None


def test_a_command_that_cannot_be_started_is_no_ending(tmp_path):
    config = AgentConfig(command="true", folder=str(tmp_path / "gone"))
    outcome, work, _ = trial(tmp_path, config, "ok")
    assert isinstance(outcome.error, HarborError) and work.ending is None


def test_a_task_that_has_the_gateways_port_is_named(tmp_path):
    home = agent_in(tmp_path, ITSELF)
    serve = (
        "python3 -m http.server 8321 --bind 127.0.0.1 & "
        "until curl -s 127.0.0.1:8321 > here; do sleep 0.1; done"
    )
    check = f'[environment.healthcheck]\ncommand = "{serve}"\n'
    config = AgentConfig(command="true", folder=str(home), place=AgentPlace.room)
    outcome, _, _ = trial(tmp_path, config, "ok", toml=check)
    assert "port 8321" in str(outcome.error)


HANGS = (
    "trap '' TERM INT; (trap '' TERM; env -i setsid sleep 987 & ) ; "
    'curl -s -H "Authorization: Bearer $OPENAI_API_KEY" $OPENAI_BASE_URL/models; sleep 986'
)


@pytest.mark.parametrize("place", list(AgentPlace))
@pytest.mark.parametrize(("command", "ending", "said"), CASES["endings of agents"])
def test_however_an_agent_ends_the_verifier_judges_and_nothing_is_left(
    tmp_path, place, command, ending, said
):
    total_s = 2 if ending == "time" else 60
    config = AgentConfig(
        command=command, place=place, folder=str(agent_in(tmp_path, SHELL)), total_s=total_s
    )
    outcome, work, _ = trial(tmp_path, config, "ok")
    assert work.ending == ending and said in work.said, work
    assert outcome.steps[0].verifier_s > 0 and outcome.steps[0].agent_s < 20
    assert not [name for name in command_lines() if name.startswith(("sleep 98", "yes"))]


@pytest.mark.parametrize("place", list(AgentPlace))
def test_other_clients_find_the_gateway_too(tmp_path, place):
    asks = (
        'touch "$CODEX_HOME/log" && grep -q "$OPENAI_BASE_URL" "$CODEX_HOME/config.toml" && '
        'curl -s -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/models" && '
        'echo " $CONTEXT_TOKENS $SKILLS_DIR $MCP_SERVERS"'
    )
    config = AgentConfig(command=asks, place=place, folder=str(tmp_path))
    offers = (
        '[environment]\nskills_dir = "/s"\n[[environment.mcp_servers]]\nname = "n"\nurl = "u"\n'
    )
    _, work, _ = trial(tmp_path, config, "ok", toml=offers)
    assert work.ending == "done" and '"policy"' in work.said, work
    told, servers = work.said.split(" /s ")
    assert told.endswith(f" {ROOMY.context_tokens}")
    assert [(one["name"], one["url"]) for one in json.loads(servers)] == [("n", "u")]


def test_an_agent_that_asks_on_after_its_last_reply_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("coding_model_project.harbor.gateway.session._LAST_S", 0.5)
    body = """'{"messages": [{"role": "user", "content": "hi"}]}'"""
    ask = f'curl -s -H "x-api-key: $OPENAI_API_KEY" -d {body} $OPENAI_BASE_URL/chat/completions'
    config = AgentConfig(command=f"while true; do {ask}; sleep 0.2; done", total_s=300)
    _, work, policy = trial(tmp_path, config, "ok", limits=replace(ROOMY, turns=2))
    assert work.ending == "turns" and len(policy.generated) == 2
    assert work.seconds < 200


def test_the_tasks_own_time_applies_too(tmp_path):
    config = AgentConfig(command="sleep 985", folder=str(tmp_path))
    outcome, work, _ = trial(tmp_path, config, "ok", toml="[agent]\ntimeout_sec = 1\n")
    assert work.ending == "time" and type(outcome.error).__name__ == "AgentTimeoutError"
    assert "sleep 985" not in command_lines()


def test_an_engine_that_is_gone_ends_the_agent_and_is_no_ending(tmp_path):
    home = agent_in(tmp_path, SHELL)
    command = f"{sys.executable} my_agent.py; sleep 984"
    config = AgentConfig(command=command, folder=str(home), total_s=60)
    outcome, work, _ = trial(tmp_path, config, GenerationError("no engine"))
    assert isinstance(outcome.error, GenerationError) and work.ending is None
    assert outcome.steps[0].rewards is None and outcome.wall_s < 30


PAGE = docs.ROOT / "docs" / "harbor-agents.md"


def block(beginning: str) -> str:
    (found,) = [one.text for one in docs.blocks(PAGE) if one.text.startswith(beginning)]
    return found


def test_the_pages_agent_works_by_native_tool_calls(tmp_path):
    (tmp_path / "my_agent.py").write_text(block("# my_agent.py\n"))
    config = AgentConfig(command=f"{sys.executable} my_agent.py", folder=str(tmp_path))
    wrong = '<tool_call>\n{"name": "bash", "arguments": {"cmd": 1}}\n</tool_call>'
    right = bash_call("echo 1 > answer; echo hi; exit 3").text()
    outcome, work, policy = trial(tmp_path, config, wrong, right, "Done.")
    assert work.ending == "done" and outcome.rewards == {"reward": 1.0}, work
    (only,) = work.session.recorder.trajectories(9)
    said = "".join(map(chr, only.response))
    assert "<tool>no command: 'command'\n" in said and "<tool>exit code 3\nhi\n" in said
    assert only.trained == sum(len(made.ids) for made in policy.generated)
