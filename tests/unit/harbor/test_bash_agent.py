"""The bash agent: commands, observations and endings of episodes."""

import asyncio
from pathlib import Path

import pytest

from coding_model_project.episodes.bash import (
    ContextOverflow,
    Ending,
    Episode,
    Limits,
    Reply,
    command_of,
)
from coding_model_project.harbor.agents import BashAgent
from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.trial import Trials
from tests.tables import tables
from tests.unit.harbor.folders import folder, solvable
from tests.unit.harbor.places import run_in_environments

CASES = tables("harbor")


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


@pytest.mark.parametrize(("reply", "command"), CASES["first closed"])
def test_the_first_closed_block_is_the_command(reply, command):
    assert command_of(reply) == command


def said(*replies: str | Exception | Reply):
    """A model with scripted replies that records its prompts."""

    class Scripted:
        def __init__(self):
            self.left = list(replies)
            self.shown: list[str] = []

        async def reply(self, messages, max_tokens):
            self.shown.append(messages[-1]["content"])
            reply = self.left.pop(0)
            if isinstance(reply, Exception):
                raise reply
            return reply if isinstance(reply, Reply) else Reply(text=reply, tokens=10)

    return Scripted()


def trial(path: Path, model, limits: Limits | None = None, toml: str = ""):
    task = solvable(path, toml)
    agent = BashAgent(model, limits or Limits())

    async def use(environments):
        return await Trials(environments).run(load_task(task), agent)

    outcome = run_in_environments(use)
    return outcome, agent.episodes[0] if agent.episodes else None


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ('skills_dir = "/skills"\n', "skills_dir"),
        ('[[environment.mcp_servers]]\nname = "n"\nurl = "u"\n', "mcp_servers"),
    ],
)
def test_a_task_that_offers_more_than_a_shell_is_refused(tmp_path, toml, key):
    outcome, episode = trial(tmp_path, said(), toml=f"[environment]\n{toml}")
    assert outcome.exception == "SandboxBuildFailedError" and outcome.rewards is None
    assert f"environment.{key}" in str(outcome.error) and episode is None


@pytest.mark.sandbox
def test_an_episode_ends_when_the_model_gives_no_command_and_is_verified_where_it_worked(tmp_path):
    model = said(bash("echo 0.5 > answer; echo out; echo err >&2; exit 3"), bash("ls"), "Done.")
    outcome, episode = trial(tmp_path, model)
    assert outcome.error is None and outcome.rewards == {"reward": 0.5}
    assert episode.ending is Ending.done
    assert model.shown == ["Do it.", "exit code 3\nout\nerr", "exit code 0\nanswer"]
    assert [turn.exit_code for turn in episode.turns] == [3, 0, None]
    assert [m["role"] for m in episode.messages] == ["system", *["user", "assistant"] * 3]


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("replies", "limits", "ending"),
    [
        ([bash("echo 1 > answer")] * 2, Limits(turns=2), Ending.turns),
        ([bash("echo 1 > answer")] * 2, Limits(tokens=20), Ending.tokens),
        ([bash("echo 1 > answer"), Reply(text=bash("rm answer"), tokens=9, cut=True)],
         Limits(), Ending.tokens),
        ([bash("echo 1 > answer"), ContextOverflow("full")], Limits(), Ending.context),
        ([bash("echo 1 > answer; sleep 60")], Limits(total_s=0.5), Ending.time),
    ],
)  # fmt: skip
def test_what_was_done_before_a_limit_counts(tmp_path, replies, limits, ending):
    outcome, episode = trial(tmp_path, said(*replies), limits)
    assert episode.ending is ending
    assert outcome.error is None and outcome.rewards == {"reward": 1.0}


@pytest.mark.sandbox
def test_the_tasks_own_time_ends_an_episode_and_is_verified(tmp_path):
    class Slow:
        async def reply(self, messages, max_tokens):
            await asyncio.sleep(60)

    toml = "[agent]\ntimeout_sec = 0.3\n"
    outcome, episode = trial(tmp_path, Slow(), toml=toml)
    assert episode.ending is Ending.time and outcome.exception == "AgentTimeoutError"


@pytest.mark.sandbox
def test_what_a_model_is_told_of_odd_commands(tmp_path):
    async def use(environments):
        task = load_task(folder(tmp_path))
        room = await environments.create(task.environment_dir, task.config.environment, {})
        episode = Episode("Do it.", room, Limits(command_s=0.3, output_bytes=80))
        try:
            for command in ("sleep 9", "seq 1000", "echo '", "echo a\0b", f": {'x' * 200_000}"):
                await episode.take(Reply(text=bash(command), tokens=1))
        finally:
            await room.cleanup()
        with pytest.raises(EnvironmentFailed):
            await episode.take(Reply(text=bash("ls"), tokens=1))
        return episode

    episode = run_in_environments(use)
    late, long, unclosed, null, huge = [turn.observation for turn in episode.turns]
    assert late == "timed out after 0.3 s"
    assert long.startswith("exit code 0\n1\n2\n") and long.endswith("\n999\n1000")
    assert "bytes left out" in long and len(long) < 160
    assert unclosed.startswith("exit code 2\n") and "unexpected EOF" in unclosed
    assert null == "exit code 126\nthe command cannot be run: embedded null byte"
    assert huge == "exit code 126\nthe command cannot be run: Argument list too long"
    assert episode.ending is None  # an outage is none
