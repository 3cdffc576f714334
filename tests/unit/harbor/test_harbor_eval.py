"""`harbor eval` against a server over real HTTP: outcomes, faults, a kill, and going on after it."""

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coding_model_project.cli import main
from coding_model_project.episodes.tool_calls import BASH_TOOL, ToolCall, bash_call
from coding_model_project.harbor.outcome import TrialResult, read_trials
from tests.bench.trials import TRIVIAL, write_task
from tests.completion_server import CompletionServer, serving
from tests.tables import tables
from tests.unit.harbor.places import engine, need_rooms
from tests.unit.harbor.test_containers import Registry, registry
from tests.unit.harbor.test_gateway_agents import ITSELF, SHELL, agent_in

CASES = tables("harbor")

pytestmark = pytest.mark.sandbox
NOBODY = CompletionServer(lambda *_: "", url="http://127.0.0.1:9/v1")
IN_ROOMS = ("--environment", "rooms")


@pytest.fixture(autouse=True)
def rooms():
    """Skips where there are none."""
    need_rooms()


def tasks(folder: Path, *names: str) -> Path:
    """Write a task per name, which is its instruction; the verifier of "broken" gives no reward."""
    for name in names:
        changes = {"instruction.md": f"{name}\n"}
        if name == "broken":
            changes["tests/test.sh"] = "#!/bin/bash\necho it broke\n"
        write_task(folder / name, {**TRIVIAL, **changes})
    return folder


def answer(prompt: str, seed: int) -> str:
    """Return the command for a task, and the end after it has run."""
    commands = {"right": "echo 42 > answer", "wrong": "echo 41 > answer", "broken": "true"}
    command = commands.get(prompt)
    if prompt == "sometimes":
        command = commands["right" if seed < 100_000 else "wrong"]
    return f"I do:\n```bash\n{command}\n```" if command else "Done."


def evaluate(server: CompletionServer, folder: Path, out: Path, *more: str) -> list[str]:
    command = ["harbor", "eval", str(folder), "--base-url", server.url, "--model", "toy"]
    return [*command, "--out", str(out), *more]


def trial_of(out: Path, task: str) -> tuple[TrialResult, list[dict]]:
    """A task's trial, and the steps of its trajectory after the system's message."""
    trial = next(one for one in read_trials(out) if one.task_name == task)
    trajectory = json.loads((out / trial.trial_name / "agent/trajectory.json").read_text())
    assert [step["step_id"] for step in trajectory["steps"]] == [
        *range(1, len(trajectory["steps"]) + 1)
    ]
    return trial, trajectory["steps"][1:]


def by_outcome(counted: dict) -> tuple[int, int, int]:
    return counted["PASS"], counted["FAIL"], counted["ERROR"]


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
    assert by_outcome(counted) == (3, 3, 2)
    assert counted["failures"] == {"ended by done": 3}
    assert counted["errors"] == {"verifier_failed": 2}
    assert counted["pass_at_k"] == {"1": 0.5, "2": pytest.approx(2 / 3, abs=1e-4)}
    assert counted["turns"] == 16 and counted["prompt_tokens"] > counted["completion_tokens"] > 0
    assert counted["judge_s"] > 0
    assert "set aside" in said and "no-org" in said and "2 × verifier_failed" in said
    assert again == counted and len(server.asked) == n_asked == 16 + 4
    trial, (_, works, ends) = trial_of(out, "right")
    (call,), (seen,) = works["tool_calls"], works["observation"]["results"]
    assert call["arguments"] == {"command": "echo 42 > answer\n"}
    assert seen["source_call_id"] == call["tool_call_id"] and "exit code 0" in seen["content"]
    assert ends["message"] == "Done." and "tool_calls" not in ends
    assert trial.model == "toy"


@pytest.mark.parametrize("takes_calls_out", [True, False])
def test_commands_as_calls_of_a_tool(tmp_path, capsys, takes_calls_out):
    folder, out = tasks(tmp_path / "t", "right", "wrong", "odd"), tmp_path / "job"

    def answering(prompt: str, seed: int) -> str:
        odd = ToolCall(name="python", arguments="{}").text()
        return odd if prompt == "odd" else calling(prompt, seed)

    with serving(CompletionServer(answering, calls=takes_calls_out)) as server:
        command = evaluate(server, folder, out)
        assert main([*command, "--calls", "tools"]) == 0
        counted, _ = last(capsys)
        assert main(command) == 2  # a job is of one form
        assert "calls" in capsys.readouterr().err
    assert by_outcome(counted) == (1, 2, 0)
    assert all(body["tools"] == [BASH_TOOL] for body in server.asked)
    _, (_, first, second) = trial_of(out, "right")
    (call,), (seen,) = first["tool_calls"], first["observation"]["results"]
    assert first["message"] == "I do:" and seen["source_call_id"] == call["tool_call_id"]
    assert (first["extra"]["exit_code"], second["extra"]["exit_code"]) == (0, None)
    assert first["extra"]["reply_s"] > 0 and first["metrics"]["completion_tokens"] > 0
    _, (_, odd, _) = trial_of(out, "odd")
    assert "no tool 'python'" in odd["observation"]["results"][0]["content"]
    last_ones = [body["messages"][-1]["content"] for body in server.asked]
    assert sum("no tool 'python'" in one for one in last_ones) == 1


def calling(prompt: str, seed: int) -> str:
    """Call the tool for a task, and end after it has run."""
    command = {"right": "echo 42 > answer", "wrong": "echo 41 > answer"}.get(prompt.strip())
    return f"I do:\n{bash_call(command).text()}" if command else "Done."


@pytest.mark.parametrize("takes_calls_out", [True, False])
@pytest.mark.parametrize("place", ["host", "room"])
def test_any_agent_works_through_the_gateway(tmp_path, capsys, place, takes_calls_out):
    in_room = place == "room"
    home = agent_in(tmp_path, ITSELF if in_room else SHELL)
    folder, out = tasks(tmp_path / "t", "right", "wrong"), tmp_path / "job"
    program = "python3 /opt/agent" if in_room else f"{sys.executable} {home}"
    agent = (
        "--agent",
        f"{program}/my_agent.py",
        "--agent-place",
        place,
        "--agent-folder",
        str(home),
    )
    with serving(CompletionServer(calling, calls=takes_calls_out)) as server:
        command = evaluate(server, folder, out, *agent, "--agent-env", "A=1")
        assert main(command) == 0
        counted, _ = last(capsys)
        n_asked = len(server.asked)
        assert main(command) == 0
        assert main(evaluate(server, folder, out, *agent)) == 2  # a job is of one agent
    assert "env" in capsys.readouterr().err
    assert by_outcome(counted) == (1, 1, 0) and len(server.asked) == n_asked == 4
    assert counted["failures"] == {"ended by done": 1} and counted["completion_tokens"] > 0
    trial, _ = trial_of(out, "right")
    told = json.loads((out / trial.trial_name / "agent" / "trajectory.json").read_text())
    written = json.loads((out / trial.trial_name / "result.json").read_text())
    assert written["agent_result"]["metadata"]["conversations"] == 1
    task, called, ended = told["steps"]
    assert [one["source"] for one in told["steps"]] == ["user", "agent", "agent"]
    assert (task["message"].strip(), ended["message"]) == ("right", "Done.")
    (call,) = called["tool_calls"]
    assert call["arguments"] == {"command": "echo 42 > answer"}
    assert called["observation"]["results"][0]["source_call_id"] == call["tool_call_id"]
    assert called["message"] == "I do:" and called["metrics"]["completion_tokens"] > 0
    assert told["agent"]["model_name"] == "toy"
    assert told["agent"]["tool_definitions"][0]["function"]["name"] == "bash"
    assert told["final_metrics"]["total_completion_tokens"] == trial.completion_tokens


def test_what_keeps_an_agent_from_working_is_no_failure_of_the_model(tmp_path, capsys):
    home = agent_in(tmp_path, SHELL)
    folder, working = tasks(tmp_path / "t", "right"), f"{sys.executable} my_agent.py"
    with serving(CompletionServer(calling)) as server:
        for number, (agent, fault, code, errors, failures) in enumerate(
            [
                ("echo no such agent; exit 1", None, 3, {"sandbox_failed": 1}, {}),
                (working, "500", 3, {"model_provider_failed": 1}, {}),
                (working, "full", 0, {}, {"ended by context": 1}),
            ]
        ):
            server.faults = [fault] if fault else []
            out = tmp_path / f"job{number}"
            more = ("--agent", agent, "--agent-folder", str(home), "--retry-s", "0")
            assert main(evaluate(server, folder, out, *more)) == code
            counted, said = last(capsys)
            assert (counted["errors"], counted["failures"]) == (errors, failures)
            assert code == 0 or "no such agent" in said or "500" in said


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
    assert by_outcome(counted) == (1, 1, 0)
    assert len(read_trials(out)) == 2 == len(list(out.glob("*__*")))


def beside_right(folder: Path, n: int, dockerfile: str) -> None:
    """Write so many tasks whose environments cannot be made, and one that can be solved."""
    changes = {"instruction.md": "right\n", "environment/Dockerfile": dockerfile}
    for number in range(n):
        write_task(folder / f"bad-{number:02}", {**TRIVIAL, **changes})
    tasks(folder, "right")


def test_a_job_without_a_trial_takes_other_settings(tmp_path, capsys):
    """The server's refusal names an option, with which the same folder has to work."""
    error = {"error": {"message": "max_tokens is too large: 2048. This model supports at most 64"}}
    folder, out = tasks(tmp_path / "tasks", "right"), tmp_path / "job"
    with serving(CompletionServer(answer, refuses={"max_tokens": error})) as server:
        assert main(evaluate(server, folder, out, *IN_ROOMS)) == 2
        assert "--max-tokens" in capsys.readouterr().err
        server.refuses.clear()
        assert main(evaluate(server, folder, out, *IN_ROOMS, "--max-tokens", "64")) == 0
        assert main(evaluate(server, folder, out, *IN_ROOMS, "--max-tokens", "32")) == 2
    assert "max_tokens: 64 → 32" in capsys.readouterr().err


def test_tasks_that_cannot_be_built_are_no_outage(tmp_path, capsys):
    """However many: the job goes on, counts them apart, and is done."""
    folder, out = tmp_path / "t", tmp_path / "job"
    beside_right(folder, 12, "FROM python:3.12-slim\nWORKDIR /app\nRUN exit 7\n")
    with serving(CompletionServer(answer)) as server:
        assert main(evaluate(server, folder, out, "--workers", "2", *IN_ROOMS)) == 0
    counted, said = last(capsys)
    assert (counted["PASS"], counted["errors"]) == (1, {"unbuildable": 12})
    assert "not evaluated: SandboxBuildFailedError" in said and "Dockerfile:3: RUN" in said
    assert "outage" not in said


def test_a_registry_that_does_not_answer_stops_no_other_task_and_is_tried_again(
    tmp_path, monkeypatch, capsys
):
    engine()
    folder, out = tmp_path / "t", tmp_path / "job"
    monkeypatch.setattr(Registry, "status", 503)  # podman waits for 6 s until one that is gone is
    with registry(tmp_path, monkeypatch) as (_, place), serving(CompletionServer(answer)) as server:
        beside_right(folder, 6, f"FROM {place}/none:1\n")
        command = evaluate(server, folder, out, "--workers", "1")
        assert main(command) == 3
        counted, said = last(capsys)
        assert (counted["PASS"], counted["errors"]) == (1, {"sandbox_failed": 6})
        assert "outage: RegistryUnreachable: " in said and place in said
        before = {one.trial_name for one in read_trials(out) if one.is_outage}
        assert main(command) == 3
    after = {one.trial_name for one in read_trials(out) if one.is_outage}
    assert len(before) == len(after) == 6 and not before & after


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
    attempts = {(t.task_name, t.attempt) for t in trials.values()}
    assert len(attempts) == 12 and not (out / "right__unended").exists()
    assert len(server.asked) - before == 2 * (12 - len(kept))


def test_several_benchmarks_are_one_job_with_totals_of_each(tmp_path, capsys):
    data = tmp_path / "data"
    tasks(data / "terminal-bench-2.0" / "4ZXB2mPqRsT8uVwY3hKjLn", "right")
    tasks(data / "terminal-bench-2.0" / "9aFgHkLmNpQrStUvWxYz12", "wrong")
    tasks(tmp_path / "mine", "right", "broken")
    with serving(CompletionServer(answer)) as server:
        command = [
            *("harbor", "eval", "--base-url", server.url, "--model", "toy"),
            *("--out", str(tmp_path / "job"), "--data-dir", str(data)),
            *("--benchmarks", "terminal_bench", "--benchmark", f"mine={tmp_path}/mine"),
        ]
        assert main(command) == 0
        counted, said = last(capsys)
        n_asked = len(server.asked)
        assert main(command) == 0
        again, _ = last(capsys)
        assert main([*command[:-2], "--benchmark", f"other={tmp_path}/mine"]) == 2
        assert "not among these tasks" in capsys.readouterr().err
    each = {name: by_outcome(one) for name, one in counted["benchmarks"].items()}
    assert each == {"terminal_bench": (1, 1, 0), "mine": (1, 0, 1)}
    assert (counted["PASS"], counted["FAIL"], counted["ERROR"], counted["n_tasks"]) == (2, 1, 1, 3)
    assert again == counted and len(server.asked) == n_asked == 8
    assert {trial.source for trial in read_trials(tmp_path / "job")} == {"terminal_bench", "mine"}
    assert "terminal_bench:" in said and "all of terminal_bench, mine:" in said


def test_a_conversation_that_outgrows_the_context_is_judged_as_it_is(tmp_path, capsys):
    """The right command has been run when the context is full."""
    folder = tasks(tmp_path / "t", "right")
    with serving(CompletionServer(answer)) as server:

        def fills(prompt: str, seed: int) -> str:
            server.faults.append("full")
            return answer(prompt, seed)

        server.answer = fills
        assert main(evaluate(server, folder, tmp_path / "job")) == 0
        counted, _ = last(capsys)
        assert len(server.asked) == 2
    assert by_outcome(counted) == (1, 0, 0) and counted["pass_of_all"] == 1


def test_more_trials_than_files_may_be_open_is_one_line(tmp_path, capsys):
    folder = tasks(tmp_path, "right")
    command = evaluate(NOBODY, folder, tmp_path / "j", "--workers", str(10**9))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("open files are not limited here")
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"this machine allows {hard}" in line
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_tasks_that_ask_for_what_is_not_here_are_set_aside(tmp_path, capsys):
    folder = tasks(tmp_path / "t", "right")
    two = "services:\n  main:\n    image: a\n  db:\n    image: b\n"
    write_task(folder / "services", {**TRIVIAL, "environment/docker-compose.yaml": two})
    write_task(folder / "gpu", {**TRIVIAL, "task.toml": "[environment]\ngpus = 1\n"})
    with serving(CompletionServer(answer)) as server:
        assert main(evaluate(server, folder, tmp_path / "job", *IN_ROOMS)) == 0
    counted, said = last(capsys)
    assert (counted["n_trials"], counted["PASS"]) == (1, 1)
    lines = [line for line in said.splitlines() if line.startswith("set aside: ")]
    assert len(lines) == 2 and "no accelerators" in lines[0] and "beside `main` (db)" in lines[1]


@pytest.mark.parametrize(("words", "said"), CASES["no evaluation"])
def test_what_cannot_be_evaluated_is_one_line(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    tasks(tmp_path / "tasks", "right")
    (tmp_path / "empty").mkdir()
    command = ["harbor", "eval", "--base-url", NOBODY.url, "--model", "m", "--out", "j"]
    assert main([*command, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
