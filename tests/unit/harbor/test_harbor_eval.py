"""`harbor eval` against a server over real HTTP: outcomes, faults, a kill, and going on after it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coding_model_project.cli import main
from coding_model_project.episodes.tool_calls import BASH_TOOL, ToolCall, bash_call
from coding_model_project.harbor.format.trial_results import read_trials
from coding_model_project.harbor.trials_benchmark import TRIVIAL, write_task
from tests.completion_server import CompletionServer, serving
from tests.unit.harbor.rooms import run_in_environments

pytestmark = pytest.mark.sandbox


@pytest.fixture(autouse=True)
def rooms():
    """Skips where there are none."""

    async def use(_):
        return None

    run_in_environments(use)


def tasks(folder: Path, *names: str) -> Path:
    """Of each name a task that says it; "broken" has a verifier that gives nothing."""
    for name in names:
        changes = {"instruction.md": f"{name}\n"}
        if name == "broken":
            changes["tests/test.sh"] = "#!/bin/bash\necho it broke\n"
        write_task(folder / name, {**TRIVIAL, **changes})
    return folder


def answer(prompt: str, seed: int) -> str:
    """A command for each task, and the end once it has been run."""
    commands = {"right": "echo 42 > answer", "wrong": "echo 41 > answer", "broken": "true"}
    command = commands.get(prompt)
    if prompt == "sometimes":
        command = commands["right" if seed < 100_000 else "wrong"]
    return f"I do:\n```bash\n{command}\n```" if command else "Done."


def evaluate(server: CompletionServer, folder: Path, out: Path, *more: str) -> list[str]:
    return [
        *("harbor", "eval", str(folder), "--base-url", server.url, "--model", "toy"),
        *("--out", str(out), *more),
    ]


def last(capsys) -> tuple[dict, str]:
    said = capsys.readouterr()
    return json.loads(said.out.splitlines()[-1]), said.out + said.err


def test_outcomes_by_cause_and_a_second_call_that_asks_nothing(tmp_path, capsys):
    folder, out = tasks(tmp_path / "t", "right", "wrong", "sometimes", "broken"), tmp_path / "job"
    write_task(folder / "bad", {**TRIVIAL, "task.toml": "[task]\nname = 'no-org'\n"})
    with serving(CompletionServer(answer, faults=["429", "500", "cut", "half"])) as server:
        command = evaluate(server, folder, out, "--attempts", "2")
        assert main(command) == 0
        counted, said = last(capsys)
        n_asked = len(server.asked)
        assert main(command) == 0
        again, _ = last(capsys)
        assert main([*command, "--temperature", "0"]) == 2
        assert "temperature" in capsys.readouterr().err
    assert (counted["PASS"], counted["FAIL"], counted["ERROR"]) == (3, 3, 2)
    assert counted["failures"] == {"ended by done": 3}
    assert counted["errors"] == {"verifier_failed": 2}
    assert counted["pass_at_k"] == {"1": 0.5, "2": pytest.approx(2 / 3, abs=1e-4)}
    assert counted["turns"] == 16 and counted["prompt_tokens"] > counted["completion_tokens"] > 0
    assert counted["judge_s"] > 0
    assert "set aside" in said and "no-org" in said and "2 × verifier_failed" in said
    assert again == counted and len(server.asked) == n_asked == 16 + 4
    trial = next(one for one in read_trials(out) if one.task_name == "right")
    conversation = json.loads((out / trial.trial_name / "agent/conversation.json").read_text())
    assert [message["role"] for message in conversation[1:]] == ["user", "assistant"] * 2
    assert trial.agent_info.model_info is not None and trial.agent_info.model_info.name == "toy"
    assert main(["harbor", "results", str(out)]) == 0
    assert "PASS 3, FAIL 3, ERROR 2" in capsys.readouterr().out


@pytest.mark.parametrize("takes_calls_out", [True, False])
def test_commands_as_calls_of_a_tool(tmp_path, capsys, takes_calls_out):
    folder, out = tasks(tmp_path / "t", "right", "wrong", "odd"), tmp_path / "job"

    def calling(prompt: str, seed: int) -> str:
        if prompt == "odd":
            return ToolCall(name="python", arguments="{}").text()
        command = {"right": "echo 42 > answer", "wrong": "echo 41 > answer"}.get(prompt)
        return f"I do:\n{bash_call(command).text()}" if command else "Done."

    with serving(CompletionServer(calling, calls=takes_calls_out)) as server:
        command = evaluate(server, folder, out)
        assert main([*command, "--calls", "tools"]) == 0
        counted, _ = last(capsys)
        assert main(command) == 2  # a job is of one form
        assert "calls" in capsys.readouterr().err
    assert (counted["PASS"], counted["FAIL"], counted["ERROR"]) == (1, 2, 0)
    assert all(body["tools"] == [BASH_TOOL] for body in server.asked)
    trial = next(one for one in read_trials(out) if one.task_name == "right")
    conversation = json.loads((out / trial.trial_name / "agent/conversation.json").read_text())
    assert [m["role"] for m in conversation[1:]] == ["user", "assistant", "tool", "assistant"]
    (call,) = conversation[2]["tool_calls"]
    assert conversation[2]["content"] == "I do:" and conversation[3]["tool_call_id"] == call["id"]
    (used,) = trial.usage
    first, second = used.metadata["timeline"]
    assert (first["exit_code"], second["exit_code"]) == (0, None) and first["reply_s"] > 0
    (odd,) = [b for b in server.asked if "no tool" in b["messages"][-1]["content"]]
    assert odd["messages"][-1]["content"] == "error: no tool 'python'; the only one is bash"


def test_an_outage_is_no_failure_and_is_tried_again(tmp_path, capsys):
    folder, out = tasks(tmp_path / "t", "right", "wrong"), tmp_path / "job"
    with serving(CompletionServer(answer, faults=["500"] * 3)) as server:
        command = evaluate(server, folder, out, "--concurrency", "1", "--retry-s", "0")
        assert main(command) == 3  # not even the list of models can be had: nothing is known
        server.faults = ["400", "full"]
        assert main(command) == 3
        counted, said = last(capsys)
        assert counted["errors"] == {"model_provider_failed": 1} and counted["PASS"] == 0
        assert counted["failures"] == {"ended by context": 1} and "BadRequestError" in said
        assert main(command) == 0
    counted, _ = last(capsys)
    assert (counted["PASS"], counted["FAIL"], counted["ERROR"]) == (1, 1, 0)
    assert len(read_trials(out)) == 2 == len(list(out.glob("*__*")))


def test_a_kill_repeats_no_trial_and_loses_none(tmp_path, capsys):
    folder, out = tasks(tmp_path / "t", "right", "wrong"), tmp_path / "job"
    with serving(CompletionServer(answer, delay_s=0.1)) as server:
        command = evaluate(server, folder, out, "--attempts", "6", "--concurrency", "2")
        program = [sys.executable, "-m", "coding_model_project", *command]
        with subprocess.Popen(program, stdout=subprocess.DEVNULL) as killed:
            deadline = time.monotonic() + 60
            while len(list(out.glob("*/result.json"))) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
            killed.send_signal(signal.SIGKILL)
        kept = {trial.trial_name: trial for trial in read_trials(out)}
        (out / "right__unended").mkdir()
        before = len(server.asked)
        assert main(command) == 0
    counted, _ = last(capsys)
    trials = {trial.trial_name: trial for trial in read_trials(out)}
    assert 3 <= len(kept) < 12 and len(trials) == 12 == counted["n_trials"]
    assert all(trials[name] == trial for name, trial in kept.items())
    attempts = {(t.task_name, t.config["agent"]["kwargs"]["attempt"]) for t in trials.values()}
    assert len(attempts) == 12 and not (out / "right__unended").exists()
    assert len(server.asked) - before == 2 * (12 - len(kept))
