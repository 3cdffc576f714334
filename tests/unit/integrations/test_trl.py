"""The reward function for TRL, called as TRL calls it; `end_to_end/test_trl.py` has the real trainer."""

import asyncio
import logging
import pickle
import sys
import threading

import pytest

import coding_model_project as cmp
from coding_model_project.data.problems import write_problems
from coding_model_project.integrations import trl
from coding_model_project.integrations.trl import CodeReward
from tests.fakes import FakeSandbox, echo, stdin_problem
from tests.processes import ran
from tests.tables import tables
from tests.text_cases import sources

SOURCES = sources(__file__)

ECHO = stdin_problem(("", "a"), ("", "a"), id="fake/echo")
HALF = stdin_problem(("", "a"), ("", "b"), id="fake/half")
UNTESTED = stdin_problem(id="fake/untested")
PROBLEMS = [ECHO, HALF, UNTESTED]


def reward(sandbox=None, **options) -> CodeReward:
    options = {"bare": True} | options
    return CodeReward(PROBLEMS, sandbox=sandbox or FakeSandbox(), **options)


def ids(*problems) -> list[str]:
    return [problem.id for problem in problems]


def test_rewards_are_floats_in_order():
    given = {"prompts": ["?"] * 3, "completion_ids": [[1]] * 3, "trainer_state": object()}
    rewards = reward()(completions=["a", "a", "x"], problem_id=ids(ECHO, HALF, HALF), **given)
    assert rewards == [1.0, 0.5, 0.0]
    assert all(type(one) is float for one in rewards)
    sparse = reward(kind="sparse")
    assert sparse(["a", "a"], problem_id=ids(ECHO, HALF)) == [1.0, 0.0]
    assert (reward().__name__, sparse.__name__) == ("code_dense", "code_sparse")


def test_of_a_conversation_the_last_thing_the_model_said_is_judged():
    fenced = [{"role": "assistant", "content": "Here:\n```python\na\n```"}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "```python\na\n```"}]}]
    tools = [
        {"role": "assistant", "content": "```python\nx\n```", "tool_calls": [{}]},
        {"role": "tool", "content": "```python\nx\n```"},
        {"role": "assistant", "content": "```python\na\n```"},
    ]
    silent = [{"role": "assistant", "content": None, "tool_calls": [{}]}]
    completions = [fenced, parts, tools, silent, []]
    rewards = reward(bare=False)(completions, problem_id=ids(*[ECHO] * 5))
    assert rewards == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_what_cannot_be_judged_has_no_reward_and_one_line_of_log(caplog):
    metrics = {}
    rewards = reward()(
        ["a", "a", "b", "x"],
        problem_id=ids(UNTESTED, ECHO, UNTESTED, ECHO),
        log_metric=lambda name, value: metrics.update({name: value}),
    )
    assert rewards == [None, 1.0, None, 0.0]
    (line,) = caplog.messages
    assert "2 of 4 samples" in line and "DataError: problem fake/untested" in line
    assert metrics == {"judge/ungradable": 0.5, "judge/accepted": 0.5}


def test_the_same_program_many_times_runs_once_and_others_at_once():
    sandbox = FakeSandbox(delay_s=0.05)
    programs = ["a", "b", "c", "d"]
    rewards = reward(sandbox, workers=4)(programs * 8, problem_id=ids(*[ECHO] * 32))
    assert rewards == [1.0, 0.0, 0.0, 0.0] * 8
    assert sorted(source for source, _ in sandbox.calls) == programs
    assert sandbox.most_running == 4


@pytest.mark.parametrize(("columns", "message"), tables("integrations")["no problem"])
def test_a_row_without_its_problem_ends_training_at_once(columns, message):
    sandbox = FakeSandbox()
    with pytest.raises(cmp.ConfigError, match=message):
        reward(sandbox)(["a"], **columns)
    assert not sandbox.calls


@pytest.mark.parametrize(
    ("problems", "options", "message"),
    [
        ([], {}, "expected at least one problem"),
        ([ECHO, ECHO], {}, "two have the id 'fake/echo'"),
        ("no_such_set", {}, "no such data set"),
        (
            PROBLEMS,
            {"kind": "passed"},
            "kind=passed: .*use dense, sparse or package.module:function",
        ),
        (PROBLEMS, {"workers": 0}, "workers=0: expected a whole number"),
        (PROBLEMS, {"sandbox": "docker"}, "sandbox='docker'"),
        (PROBLEMS, {"max_lost_batches": 0}, "max_lost_batches=0"),
    ],
)
def test_wrong_arguments_are_refused_before_training(problems, options, message):
    with pytest.raises(cmp.ConfigError, match=message):
        CodeReward(problems, **options)


def test_rows_of_problems(tmp_path):
    path = tmp_path / "mine.jsonl"
    write_problems(path, [ECHO])
    judged = CodeReward(path, column="task", kind="sparse", bare=True, sandbox=FakeSandbox())
    again = pickle.loads(pickle.dumps(judged))
    assert again(["a"], task=["fake/echo"], problem_id=["other"]) == [1.0]
    assert again.__name__ == "code_sparse"
    first, *_ = trl.rows(PROBLEMS)
    assert first["problem_id"] == "fake/echo"
    assert first["prompt"][0]["content"].endswith("block that holds the whole program.")
    assert trl.rows([ECHO], bare=True)[0]["prompt"] == [{"role": "user", "content": "?"}]


def test_batches_of_which_nothing_can_be_judged_end_training():
    judged = reward(max_lost_batches=2)
    lost, good = ids(UNTESTED, UNTESTED), ids(UNTESTED, ECHO)
    assert judged(["a", "b"], problem_id=lost) == [None, None]
    assert judged(["a", "b"], problem_id=good) == [None, 0.0]  # counting begins anew
    assert judged(["a", "b"], problem_id=lost) == [None, None]
    with pytest.raises(cmp.SandboxError, match=r"2 batches in a row.*problem fake/untested"):
        judged(["a", "b"], problem_id=lost)


def test_a_sandbox_that_does_not_start_ends_training(monkeypatch):
    class Broken(FakeSandbox):
        async def __aenter__(self):
            raise cmp.SandboxError("no such tier here")

    with pytest.raises(cmp.SandboxError, match="no such tier here"):
        reward(Broken())(["a"], problem_id=ids(ECHO))
    monkeypatch.setattr(trl, "usable_cores", lambda: 8)
    for size, cores in (("1", 8), ("3", 2), ("16", 1)):  # processes of a launcher share them
        monkeypatch.setenv("LOCAL_WORLD_SIZE", size)
        assert trl._share_of_cores() == cores


def test_a_sandbox_that_often_fails_ends_training():
    def flaky(source, given):
        if source.endswith("3"):
            raise cmp.SandboxError("the fake is down")
        return echo(source, given)

    judged = reward(FakeSandbox(flaky))
    with pytest.raises(cmp.SandboxError, match=r"^judging keeps failing, so training stops; ") as e:
        for start in range(0, 400, 10):
            programs = [f"{start + n}{'3' if n < 4 else ''}" for n in range(10)]
            rewards = judged(programs, problem_id=ids(*[ECHO] * 10))
            assert rewards.count(None) >= 4
    assert "\n" not in str(e.value)
    assert start == 10  # a fifth of at least 20 samples


async def test_it_can_be_called_where_an_event_loop_runs_and_from_threads():
    judged = reward()
    assert judged(["a"], problem_id=ids(HALF)) == [0.5]
    calls = (asyncio.to_thread(judged, [str(n), "a"], problem_id=ids(ECHO, ECHO)) for n in range(8))
    assert await asyncio.gather(*calls) == [[0.0, 1.0]] * 8
    assert sum(thread.name == "judge" for thread in threading.enumerate()) >= 1


SCRIPT = SOURCES["script"]


@pytest.mark.sandbox
def test_forked_and_spawned_processes_judge_too_and_all_end_cleanly(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = ran([sys.executable, str(path)], timeout=100)
    four = str([[1.0, 0.0]] * 4)
    assert done.stdout.splitlines() == ["[1.0, 0.0]", four, four, "[1.0, 0.0]"], done.stderr
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.fixture(autouse=True)
def _warnings(caplog):
    caplog.set_level(logging.WARNING)
