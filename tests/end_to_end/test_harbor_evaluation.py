"""`harbor eval` with a model that vLLM loads in its process, behind the bash agent and the page's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from coding_model_project.harbor.records import read_trials
from coding_model_project.synthetic.tinyshell.shell_files import write_shell_task
from tests import docs
from tests.end_to_end.shell_world import TASKS

pytestmark = [pytest.mark.e2e, pytest.mark.sandbox, pytest.mark.timeout(600)]
PAGE = docs.ROOT / "docs" / "harbor-agents.md"


@pytest.mark.parametrize("by_agent", [False, True])
def test_a_model_of_this_process_works_on_tasks(tmp_path, tool_caller, by_agent):
    for number, task in enumerate(TASKS):
        write_shell_task(tmp_path, task, str(number))
    (block,) = [one for one in docs.blocks(PAGE) if one.text.startswith("# my_agent.py\n")]
    (tmp_path / "my_agent.py").write_text(block.text)
    agent = ("--agent", f"{sys.executable} my_agent.py", "--agent-folder", str(tmp_path))
    command = [sys.executable, "-m", "coding_model_project", "harbor", "eval"]
    command += [str(tmp_path / "tasks"), "--model", str(tool_caller)]
    command += ["--out", str(tmp_path / "job"), "--max-tokens", "48"]
    ended = subprocess.run(
        [*command, *(agent if by_agent else ("--calls", "tools"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    counted = json.loads(ended.stdout.splitlines()[-1])
    assert counted["n_trials"] == len(TASKS) == counted["PASS"] + counted["FAIL"]
    assert counted["PASS"] > 0 and counted["prompt_tokens"] > counted["completion_tokens"] > 0
    for trial in read_trials(tmp_path / "job") if by_agent else ():
        (used,) = trial.usage
        folder = tmp_path / "job" / trial.trial_name / "agent"
        told = json.loads((folder / "trajectory.json").read_text())
        assert told["final_metrics"]["total_completion_tokens"] <= (used.n_output_tokens or 0)
