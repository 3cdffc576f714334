"""An unmodified agent on a real task: the page's, of the `openai` package."""

from __future__ import annotations

import sys

import pytest

from coding_model_project.episodes.tool_calls import bash_call
from coding_model_project.harbor.harbor_config import AgentConfig
from tests import docs
from tests.unit.harbor.test_gateway_agents import trial

pytestmark = pytest.mark.sandbox

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
