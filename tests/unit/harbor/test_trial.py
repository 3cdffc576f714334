"""Trials: files that reach the verifier, endings, and the grader's verdicts."""

import asyncio
import itertools
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from coding_model_project.errors import CheckerError, DataError
from coding_model_project.grading.retries import Limiter
from coding_model_project.grading.rewards import dense, sparse
from coding_model_project.harbor import verification
from coding_model_project.harbor.agents import Oracle, Script
from coding_model_project.harbor.environment.base import CommandResult
from coding_model_project.harbor.failures import VerifierUnusableError
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.harbor.rooms import rooms
from coding_model_project.harbor.trial import Trials
from coding_model_project.harbor.verification import hindrance
from coding_model_project.types import ErrorType, Problem
from tests.processes import below
from tests.unit.harbor.folders import CHECK, solvable
from tests.unit.harbor.places import end_rooms, run_in_environments

pytestmark = pytest.mark.sandbox

POORER = Path(__file__).parents[1] / "sandbox" / "poorer.py"
IMAGE = "FROM debian\nWORKDIR /app\n"


def made(path: Path, toml: str = "", solve: str = "echo 1 > answer", test: str = CHECK) -> Path:
    return solvable(path, toml, solve, tests__test_sh=test)


def outcome(task: Path, agent=None, environ=None, **settings):
    async def use(environments):
        read = replace(load_task(task), environ=environ or {})
        return await Trials(environments, **settings).run(read, agent or Oracle())

    return run_in_environments(use)


def test_an_agent_that_fails_or_is_late_is_verified_all_the_same(tmp_path):
    failed = outcome(made(tmp_path / "a"), Script("echo 0.5 > answer; exit 3"))
    assert (failed.rewards, failed.exception) == ({"reward": 0.5}, "NonZeroAgentExitCodeError")
    late = outcome(
        made(tmp_path / "b", "[agent]\ntimeout_sec = 1.0\n"), Script("echo 1 > answer; sleep 60")
    )
    assert (late.rewards, late.exception) == ({"reward": 1.0}, "AgentTimeoutError")
    assert not failed.reward_valid and late.reward_valid


def test_the_verifiers_variables(tmp_path):
    toml = '[environment.env]\nA = "e"\n[verifier.env]\nB = "${TAKEN}"\nC = "task"\n'
    test = '#!/bin/bash\n[ "$A$B$C" = ehc ] && echo 1 > /logs/verifier/reward.txt\n'
    task = made(tmp_path, toml, test=test)
    settings = {"environ": {"TAKEN": "h"}, "verifier_env": {"C": "c"}}
    assert outcome(task, **settings).rewards == {"reward": 1.0}


@pytest.mark.parametrize("given", [{"ASKED": "x"}, {"TAKEN": "x"}])
def test_variables_given_to_verifiers_fill_in_what_a_task_asks_for(tmp_path, given):
    toml = '[verifier.env]\nASKED = "${TAKEN}"\n'
    test = '#!/bin/bash\n[ "$ASKED" = x ] && echo 1 > /logs/verifier/reward.txt\n'
    task = made(tmp_path, toml, test=test)
    assert outcome(task, verifier_env=given).rewards == {"reward": 1.0}


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ('artifacts = [{source = "/data/x", service = "db"}]\n', "artifacts"),
        ('[[verifier.collect]]\ncommand = "true"\nservice = "db"\n', "verifier.collect"),
    ],
)
def test_another_service_is_refused_by_name(tmp_path, toml, key):
    ended = outcome(made(tmp_path, toml))
    assert ended.exception == "ServiceOperationsUnsupportedError"
    assert ended.failure_cause == "harbor_failed"
    assert f"{key}: service='db' is not supported" in str(ended.error)


def test_artifacts_and_the_solutions_output_are_kept(tmp_path):
    toml = (
        'artifacts = [{source = "/app/answer", destination = "mine/a.txt"}, "/app/none", "/app"]\n'
    )
    (step,) = outcome(made(tmp_path, toml, solve="echo solving; echo 1 > answer")).steps
    found = {one.destination: one.found for one in step.collected}
    assert list(found) == ["logs/artifacts", "mine/a.txt", "app"]
    assert found["mine/a.txt"].at("mine/a.txt").file("mine/a.txt") == b"1\n"
    assert step.agent_files.file("oracle.txt") == b"solving\n"


def test_the_reason_for_a_reward_of_0_begins_with_how_the_solution_failed(tmp_path):
    solve = "echo 0 > answer\necho 'no such module' >&2\nexit 3"
    ended = outcome(made(tmp_path, solve=solve))
    assert ended.rewards == {"reward": 0.0}  # Harbor ignores the exit code, too
    assert ended.reason.startswith("the solution exited with 3: no such module; the verifier:")
    assert ended.steps[0].agent_files.file("exit-code.txt") == b"3"


def test_rewards_of_other_names_have_no_main_one(tmp_path):
    write = """echo '{"speed": 1, "size": 1}' > /logs/verifier/reward.json"""
    ended = outcome(made(tmp_path, test=f"#!/bin/bash\n{write}\n"))
    assert ended.reward_valid and ended.reward is None
    assert ended.reason == "none of the rewards speed, size is named `reward`"


def test_a_health_check_that_never_passes_ends_the_trial(tmp_path):
    toml = '[environment.healthcheck]\ncommand = "exit 1"\ninterval_sec = 0.01\nretries = 2\n'
    ended = outcome(made(tmp_path, toml))
    assert (ended.rewards, ended.exception) == (None, "HealthcheckError")
    assert ended.failure_cause == "sandbox_failed"


def test_a_reward_outside_of_its_declared_range_is_none(tmp_path):
    ended = outcome(made(tmp_path, "[metadata]\nreward_range = [0, 1]\n", "echo 50 > answer"))
    assert (ended.rewards, ended.exception) == (None, "VerifierOutputParseError")


def test_a_verifier_that_forks_and_exits_is_over_when_it_exits(tmp_path):
    late = "(sleep 1; echo 1 > /logs/verifier/reward.txt; sleep 600) &"
    ended = outcome(made(tmp_path / "a", test=f"#!/bin/bash\n{late}\n"))
    assert ended.exception == "RewardFileNotFoundError" and ended.wall_s < 30
    ended = outcome(made(tmp_path / "b", test=f"{CHECK}echo said; {late.replace('1 >', '0 >')}\n"))
    assert ended.rewards == {"reward": 1.0} and ended.steps[0].verifier_output == "said\n"
    end_rooms()
    assert not below("keeper")


def test_what_a_verifier_printed_is_kept_where_it_gave_nothing(tmp_path):
    ended = outcome(made(tmp_path, test="#!/bin/bash\necho why; exit 1\n"))
    assert ended.rewards is None and ended.steps[0].verifier_output == "why\n"


def test_a_step_sees_nothing_of_the_verifier_before_it(tmp_path):
    toml = '[[steps]]\nname = "one"\nmin_reward = 1.0\n[[steps]]\nname = "two"\n'
    task = made(
        tmp_path, toml, "ls /tests /logs/verifier >> seen; cat /tests/* >> seen; echo 1 > answer"
    )
    for name in ("one", "two"):
        (task / "steps" / name).mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text("x")
    check = "#!/bin/bash\ncat /app/seen; cat /app/answer > /logs/verifier/reward.txt\n"
    (task / "tests" / "test.sh").write_text(check)
    ended = outcome(task)
    assert ended.rewards == {"reward": 1.0} and len(ended.steps) == 2
    assert "test.sh" not in ended.steps[1].verifier_output


def test_what_a_container_engine_is_needed_for_is_one_line(tmp_path):
    task = made(tmp_path)
    (task / "environment" / "Dockerfile").write_text("FROM nvidia/cuda:12\n")
    ended = outcome(task)
    assert ended.exception == "SandboxBuildFailedError"
    assert "--environment podman" in str(ended.error)


# ── the grader ────────────────────────────────────────────────────────────────────────────────────


def verdicts(task: Path, *codes: str | None, language: str = "bash"):
    problem = replace(Problem.simple("", tests=[]), language=language, task=str(task))

    async def use(_):
        async with HarborGrader(limiter=Limiter(2)) as grader:
            return problem, [await grader.grade_code(problem, code) for code in codes]

    return run_in_environments(use)


def test_rewards_dense_and_sparse(tmp_path):
    problem, found = verdicts(made(tmp_path), "echo 1 > answer", "echo 0.25 > answer", None)
    assert [dense(problem, one).total for one in found] == [1.0, 0.25, 0.0]
    assert [sparse(problem, one).total for one in found] == [1.0, 0.0, 0.0]
    assert [one.error for one in found] == [None, ErrorType.wrong_answer, ErrorType.no_code]


def test_python_goes_to_the_file_that_is_asked_for(tmp_path):
    task = made(tmp_path, solve="echo 'print(1)' > solution.py",
                test="#!/bin/bash\npython3 solution.py > /logs/verifier/reward.txt\n")  # fmt: skip
    _, (found,) = verdicts(task, "print(0.75)", language="python")
    assert found.rewards == {"reward": 0.75}


def test_who_is_to_blame_for_a_verifier_that_fails(tmp_path):
    _, (broke,) = verdicts(made(tmp_path / "a"), "echo nonsense > answer")
    assert broke.error is ErrorType.runtime_error and "nonsense" in broke.results[0].detail
    with pytest.raises(CheckerError, match="the verifier failed"):
        verdicts(made(tmp_path / "b", solve="echo no number > answer"), "echo nonsense > answer")


def test_rewards_without_a_main_one_are_no_verdict(tmp_path):
    test = "#!/bin/bash\necho '{\"style\": 1}' > /logs/verifier/reward.json\n"
    with pytest.raises(DataError, match="have no 'reward'"):
        verdicts(made(tmp_path, test=test), "true")


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def test_a_machine_without_namespaces_says_so_with_the_way_out(tmp_path):
    made(tmp_path / "good")
    command = [sys.executable, str(POORER), "same", "unshare", sys.executable]
    command += ["-m", "coding_model_project", "harbor", "grade", str(tmp_path)]
    command += ["--environment", "rooms"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3 and done.stdout == ""
    assert "unshare" in done.stderr and "--environment docker" in done.stderr


# ── the machine's doing ───────────────────────────────────────────────────────────────────────────

SLOW_ONCE = """#!/bin/bash
cat /app/answer > /logs/verifier/reward.txt
[ -e /app/again ] || { touch /app/again; sleep 60; }
"""


def test_a_verifier_that_times_out_runs_again_alone(tmp_path):
    """The first time it does, and the second time while no other trial runs."""
    toml = "[verifier]\ntimeout_sec = 2.0\n"
    task = load_task(made(tmp_path / "a", toml, test=SLOW_ONCE))
    other = load_task(made(tmp_path / "b", solve="sleep 3; echo 1 > answer"))

    async def use(environments):
        trials = Trials(environments)
        ended = []

        async def run(one):
            outcome = await trials.run(one, Oracle())
            ended.append(outcome.task.label)
            return outcome.rewards

        rewards = await asyncio.gather(run(task), run(other))
        return rewards, ended

    rewards, ended = run_in_environments(use)
    assert (rewards, ended) == ([{"reward": 1.0}] * 2, ["b", "a"])


def test_a_verifier_that_times_out_again_is_late(tmp_path):
    toml = "[verifier]\ntimeout_sec = 0.5\n"
    late = outcome(made(tmp_path, toml, test="#!/bin/bash\nsleep 60\n"))
    assert (late.rewards, late.exception) == (None, "VerifierTimeoutError")


def test_a_verifier_that_fails_for_lack_of_memory_is_no_verdict(tmp_path, monkeypatch):
    kills = itertools.count()
    monkeypatch.setattr(verification, "oom_kills", lambda: next(kills))
    ended = outcome(made(tmp_path / "a", solve="echo 0 > answer"))
    assert (ended.rewards, ended.failure_cause) == (None, "sandbox_failed")
    assert outcome(made(tmp_path / "b")).rewards == {"reward": 1.0}
    # A program that exceeds its environment's own limit does not get out of its failure.
    monkeypatch.setattr(rooms, "CommandResult", partial(CommandResult, over_memory=True))
    assert outcome(made(tmp_path / "c", solve="echo 0 > answer")).rewards == {"reward": 0.0}


# ── verifiers that cannot work ────────────────────────────────────────────────────────────────────

FETCHES = """#!/bin/bash
no-such-tool /app/answer && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
OFFLINE = "#!/bin/bash\necho Could not resolve host: a.b; echo 0 > /logs/verifier/reward.txt\n"
LIES = "echo 0 > answer; echo 'echo curl: (6) Could not resolve host: a.b; exit 127' > said"
PRINTS = "#!/bin/bash\ncat /app/answer > /logs/verifier/reward.txt\n. /app/said\n"


def test_a_verifier_without_its_tools_gives_no_verdict(tmp_path):
    """Whoever worked: the own solution, or a candidate, whose work may be right."""
    task = made(tmp_path, test=FETCHES)
    for agent in (Oracle(), Script("echo 1 > answer")):
        ended = outcome(task, agent)
        assert (ended.rewards, ended.reward_valid) == (None, False)
        assert ended.failure_cause == "verifier_failed"
        assert "no-such-tool: command not found" in str(ended.error)
    with pytest.raises(VerifierUnusableError, match="--environment"):
        verdicts(task, "echo 1 > answer")


def test_a_script_without_its_interpreter_gives_no_verdict(tmp_path):
    ended = outcome(made(tmp_path, test="#!/usr/bin/no-such-python\n"), Script("true"))
    assert ended.exception == "RewardFileNotFoundError" and not ended.reward_valid


def test_what_a_program_prints_does_not_buy_it_out_of_a_0(tmp_path):
    """The own solution earns its reward, so the verifier works."""
    solved = "echo 1 > answer; touch said"
    lied = outcome(made(tmp_path / "a", solve=solved, test=PRINTS), Script(LIES))
    assert (lied.rewards, lied.reward_valid, lied.error) == ({"reward": 0.0}, True, None)
    _, (verdict,) = verdicts(made(tmp_path / "b", solve=solved, test=PRINTS), LIES)
    assert verdict.error is ErrorType.wrong_answer
    # The solution fails without such signs: it is wrong, and the verifier is not to blame.
    wrong = outcome(made(tmp_path / "c", solve="echo 0 > answer; touch said", test=PRINTS))
    assert wrong.reward_valid and wrong.rewards == {"reward": 0.0}


@pytest.mark.parametrize(
    ("test", "exception"),
    [
        (FETCHES, None),  # to install the tool may be what the task asks for
        (OFFLINE, "VerifierUnusableError"),
        (PRINTS, None),
    ],
)
def test_without_a_solution_only_a_missing_network_is_no_verdict(tmp_path, test, exception):
    """An agent that does nothing shows it, and what another one prints does not count."""
    task = made(tmp_path, test=test)
    (task / "solution" / "solve.sh").unlink()
    (task / "environment" / "Dockerfile").write_text(IMAGE + "COPY answer said ./\n")
    for name, text in (("answer", "0"), ("said", "")):
        (task / "environment" / name).write_text(text)
    assert outcome(task, Script(LIES)).exception == exception


def test_a_verifier_is_tried_once_for_all_who_fail(tmp_path):
    async def use(environments):
        trials = Trials(environments)
        found = await asyncio.gather(*(trials.run(task, Script("true")) for _ in range(3)))
        return found, await trials.control(task)

    task = load_task(made(tmp_path, solve="echo 1 >> answer", test=FETCHES))
    found, control = run_in_environments(use)
    assert {ended.exception for ended in found} == {"VerifierUnusableError"}
    assert control.task is task and control.hindered


def test_a_module_that_the_agent_did_not_write_is_a_0(tmp_path):
    check = "python3 -c 'import answer' && reward=1 || reward=0; echo $reward > /logs/verifier/reward.txt"
    task = made(tmp_path, solve="true", test=check)
    for agent in (Script("true"), Oracle()):
        ended = outcome(task, agent)
        assert ended.rewards == {"reward": 0.0} and ended.reward_valid


SERVER = """import socket, time
with socket.create_server(("127.0.0.1", 8123)):
    time.sleep(600)
"""
SERVE = (
    f"cat > /tmp/s.py <<'EOF'\n{SERVER}EOF\n"
    "setsid python3 /tmp/s.py > /dev/null 2>&1 &\n"
    "until (: < /dev/tcp/127.0.0.1/8123) 2> /dev/null; do sleep 0.1; done\n"
)
ASKS = "#!/bin/bash\n(: < /dev/tcp/127.0.0.1/8123) 2> /dev/null && r=1 || r=0\n"


@pytest.mark.parametrize("works", [True, False])
def test_a_task_whose_solution_must_keep_serving_gives_no_verdict(tmp_path, works):
    """The same agent earns its 0 where the solution leaves a file too, and not only a server."""
    test = f"{ASKS}[ -f /app/kept ] && r=1\necho $r > /logs/verifier/reward.txt\n"
    task = made(tmp_path, test=test, solve=f"{SERVE}{'echo > kept' if works else ''}")
    given = outcome(task)
    own = outcome(task, Script(SERVE))
    if works:
        assert (given.rewards, own.rewards) == ({"reward": 1.0}, {"reward": 0.0})
        return
    for ended in (given, own):
        assert (ended.exception, ended.rewards) == ("VerifierUnusableError", None)
        assert "servers that ended with the agent, on port 8123" in str(ended.error)
        assert ended.failure_cause == "verifier_failed"
    assert outcome(task, Script("sleep 600 &")).rewards == {"reward": 0.0}


def test_a_line_of_megabytes_hides_no_sign_and_takes_no_time():
    long = "python" * 1_000_000
    assert hindrance(long, 0) is None
    found = hindrance(f"{long}\nls\n/tests/test.sh: line 2: kit: command not found\n", 1)
    assert found == "/tests/test.sh: line 2: kit: command not found"
