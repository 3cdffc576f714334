"""`harbor eval` with a model that vLLM loads in its process, behind the bash agent and the page's own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from coding_model_project.harbor.outcome import read_trials
from coding_model_project.synthetic.tinyshell import write_shell_task
from tests import docs
from tests.end_to_end.shell_world import TASKS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.sandbox,
    pytest.mark.xdist_group("ray"),  # whose tests have taught the same model
    pytest.mark.timeout(600),
]
PAGE = docs.ROOT / "docs" / "harbor-agents.md"
IN_ONE_PROCESS = """
import gc, json, sys
from coding_model_project import cli
for words in json.loads(sys.argv[1]):
    assert cli.main(words) == 0
    gc.collect()
"""
"""Importing vLLM takes longer than these tasks."""


def test_a_model_of_this_process_works_on_tasks(tmp_path, tool_caller):
    for number, task in enumerate(TASKS):
        write_shell_task(tmp_path, task, str(number))
    (block,) = [one for one in docs.blocks(PAGE) if one.text.startswith("# my_agent.py\n")]
    (home := tmp_path / "home").mkdir()
    (home / "my_agent.py").write_text(block.text)
    agent = ("--agent", f"{sys.executable} my_agent.py", "--agent-folder", str(home))
    command = ["harbor", "eval", str(tmp_path / "tasks"), "--model", str(tool_caller)]
    command += ["--max-tokens", "48", "--out"]
    by_bash = [*command, str(tmp_path / "bash"), "--calls", "tools"]
    by_agent = [*command, str(tmp_path / "agent"), *agent]
    ended = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, json.dumps([by_bash, by_agent])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    both = [json.loads(line) for line in ended.stdout.splitlines() if '"n_trials"' in line]
    assert len(both) == 2
    for counted in both:
        assert counted["n_trials"] == len(TASKS) == counted["PASS"] + counted["FAIL"]
        assert counted["PASS"] > 0 and counted["prompt_tokens"] > counted["completion_tokens"] > 0
    for trial in read_trials(tmp_path / "agent"):
        folder = tmp_path / "agent" / trial.trial_name / "agent"
        told = json.loads((folder / "trajectory.json").read_text())
        assert told["final_metrics"]["total_completion_tokens"] <= trial.completion_tokens
