"""Unmodified agents on a real task: the page's, of the `openai` package, and mini-swe-agent."""

from __future__ import annotations

import os
import sys

import pytest

from coding_model_project.episodes.tool_calls import bash_call
from coding_model_project.harbor.agent_config import AgentConfig, AgentPlace
from tests import docs
from tests.unit.harbor.test_gateway_agents import trial

pytestmark = pytest.mark.sandbox

PAGE = docs.ROOT / "docs" / "harbor-agents.md"
MINI = os.environ.get("MINI_SWE_AGENT")
"""A folder made by `pip install --target FOLDER mini-swe-agent`, with the rooms' Python."""


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


@pytest.mark.soak
@pytest.mark.skipif(MINI is None, reason="MINI_SWE_AGENT names no folder with it")
def test_mini_swe_agent_works_in_the_room_as_the_page_starts_it(tmp_path):
    config = AgentConfig(
        command=block("export PYTHONPATH=/opt/agent"),
        folder=MINI,
        place=AgentPlace.room,
        total_s=200,
    )
    calls = ["echo 1 > answer; ls", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    replies = ["I look first.", *(f"Now.\n{bash_call(call).text()}" for call in calls)]
    outcome, work, policy = trial(tmp_path, config, *replies)
    assert work.ending == "done" and outcome.rewards == {"reward": 1.0}, work
    assert outcome.integrity == "isolated"
    # It forgets a reply without a call, and goes on from before it: a conversation of its own.
    forgotten, main = work.session.recorder.trajectories(9)
    generated = sum(len(made.ids) for made in policy.generated)
    assert forgotten.trained + main.trained == generated
    assert [len(one.spans) for one in (forgotten, main)] == [1, 2]
    assert "Tool call error" in "".join(map(chr, main.prompt))
