"""Equal programs are judged once; failures are never cached."""

import asyncio
from dataclasses import fields, replace

import pytest

from coding_model_project.errors import DataError, SandboxError, UngradableError
from coding_model_project.evaluation.plan import data_version
from coding_model_project.grading.base import judge_completions
from coding_model_project.grading.cache import CachedGrader, problem_digest
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.retries import CircuitBreaker
from coding_model_project.types import (
    UNJUDGED,
    Call,
    Checker,
    Execution,
    Harness,
    Instruction,
    Isolation,
    Limits,
    Predicted,
    Prediction,
    Problem,
    Status,
    Test,
    Turn,
    Verdict,
)
from tests.fakes import FakeSandbox, echo, stdin_problem

PROBLEM = stdin_problem(("", "1"))


def cached(sandbox, *, bare=True, max_bytes=1 << 20):
    inner = ExecutionGrader(sandbox, stop_early=False)
    return CachedGrader(inner, bare=bare, max_bytes=max_bytes)


async def test_a_duplicate_is_answered_from_memory():
    sandbox = FakeSandbox()
    judge = cached(sandbox)
    first = await judge.grade(PROBLEM, "1")
    second = await judge.grade(PROBLEM, "1")
    assert not first.cached
    assert first.judge_s > 0
    assert second == replace(first, cached=True, judge_s=0.0)
    assert (judge.hits, judge.misses, len(sandbox.calls)) == (1, 1, 1)


async def test_the_same_code_from_another_rule_keeps_its_own_rule():
    judge = cached(FakeSandbox(), bare=False)
    tagged = await judge.grade(PROBLEM, "```python\n1\n```")
    untagged = await judge.grade(PROBLEM, "```\n1\n```")
    assert untagged.cached
    assert (tagged.extraction, untagged.extraction) == ("tagged_block", "untagged_block")


@pytest.mark.parametrize(
    "other", [stdin_problem(("", "2")), stdin_problem(("x", "1")), replace(PROBLEM, atol=0.01)]
)
async def test_another_problem_is_judged(other):
    judge = cached(FakeSandbox())
    await judge.grade(PROBLEM, "1")
    assert not (await judge.grade(other, "1")).cached
    assert not (await judge.grade(PROBLEM, "1 ")).cached


CHANGES = {
    "id": "fake/2", "split": "other", "statement": "!", "tests": (), "limits": Limits(cpu_s=1),
    "comparison": "exact", "atol": 0.01, "rtol": 0.0, "checker": Checker(source="x"),
    "isolation": Isolation.shared, "entry_point": "f", "language": "cpp", "difficulty": 9,
    "date": "2024-08-01", "tags": ("lists",), "gold": ("1",), "bad": ("2",), "task": "tasks/1",
    "answer": "42", "instructions": (Instruction("a", {"n": 1}),),
    "prediction": Prediction(of=Predicted.output, program="def f(): ...", output=(1,)),
    "harness": Harness(after="x"), "messages": (Turn("user", "?"),), "base_tests": 1, "prelude": "x",
    "publisher": "livecodebench",
}  # fmt: skip
"""Another value of each field of a problem. A new field goes here, and is part of all digests unless it
is in `types.UNJUDGED`."""


@pytest.mark.parametrize("name", [field.name for field in fields(Problem)])
def test_every_field_counts_for_verdicts_and_for_versions_of_data_but_those_named(name):
    other = replace(PROBLEM, **{name: CHANGES[name]})
    assert (problem_digest(other) == problem_digest(PROBLEM)) is (name in UNJUDGED)
    same = data_version([other]) == data_version([PROBLEM])
    assert same is (name in (*UNJUDGED, "publisher"))


def test_values_that_differ_in_type_only_are_other_problems():
    digests = {
        problem_digest(replace(PROBLEM, tests=(Test(Call("f", args), expected=1),)))
        for args in (((1, 2),), ([1, 2],), (1, 2), ({1: 2},))
    }
    assert len(digests) == 4


async def test_problems_of_any_data_have_a_key():
    tests = (Test(input=Call(function="f", args=({"a": {1, 2}},)), expected=10**5000),)
    await cached(FakeSandbox()).grade(replace(PROBLEM, tests=tests), "1")


async def test_duplicates_in_flight_share_one_run():
    sandbox = FakeSandbox(delay_s=0.01)
    judge = cached(sandbox)
    verdicts = await asyncio.gather(*(judge.grade(PROBLEM, "1") for _ in range(8)))
    assert sum(v.cached for v in verdicts) == 7
    assert len(sandbox.calls) == 1


async def test_a_failure_reaches_all_who_wait_and_is_not_kept():
    sandbox = FakeSandbox(delay_s=0.01, failures=1)
    judge = cached(sandbox)
    tries = [judge.grade(PROBLEM, "1") for _ in range(4)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert all(isinstance(outcome, SandboxError) for outcome in outcomes)
    assert (await judge.grade(PROBLEM, "1")).passed
    assert len(sandbox.calls) == 2


async def test_one_who_gives_up_does_not_end_it_for_the_others():
    sandbox = FakeSandbox(delay_s=0.02)
    judge = cached(sandbox)
    first, second = (asyncio.create_task(judge.grade(PROBLEM, "1")) for _ in range(2))
    await asyncio.sleep(0.005)
    first.cancel()
    assert (await second).passed
    assert first.cancelled()


async def test_a_run_nobody_waits_for_is_cancelled():
    sandbox = FakeSandbox(delay_s=60)
    judge = cached(sandbox)
    only = asyncio.create_task(judge.grade(PROBLEM, "1"))
    await asyncio.sleep(0.005)
    only.cancel()
    await asyncio.sleep(0.005)
    assert sandbox.running == 0
    sandbox.delay_s = 0
    assert not (await judge.grade(PROBLEM, "1")).cached


async def test_the_oldest_is_dropped_first():
    judge = cached(FakeSandbox(), max_bytes=250_000)
    first, second, third = (f"{n}{' ' * 100_000}" for n in (1, 2, 3))
    for code in (first, second, first, third):
        await judge.grade(PROBLEM, code)
    assert (await judge.grade(PROBLEM, first)).cached
    assert not (await judge.grade(PROBLEM, second)).cached
    for _ in range(2):  # larger than all of it
        assert not (await judge.grade(PROBLEM, f"1{' ' * 300_000}")).cached


async def test_what_is_known_counts_for_the_breaker():
    def some_fail(source, given):
        if source == "lost":
            raise SandboxError("this one always")
        return echo(source, given)

    breaker = CircuitBreaker(window=20, max_rate=0.5, min_samples=4)
    inner = ExecutionGrader(FakeSandbox(some_fail), stop_early=False, breaker=breaker)
    judge = CachedGrader(inner, bare=True)
    for _ in range(12):
        assert (await judge.grade(PROBLEM, "1")).passed
        with pytest.raises(SandboxError, match="always"):
            await judge.grade(PROBLEM, "lost")


PROBLEMS = [stdin_problem(("", str(i)), id=f"fake/{i}") for i in range(5)]


class SlowFirst(FakeSandbox):
    """Later programs finish before earlier ones."""

    async def run(self, program, inputs, limits, *, stop_when=None):
        await asyncio.sleep(0.02 / (1 + len(self.calls)))
        return await super().run(program, inputs, limits, stop_when=stop_when)


def grader(sandbox):
    return CachedGrader(ExecutionGrader(sandbox, stop_early=False), bare=True)


async def test_order_is_kept_and_progress_told():
    seen = []
    texts = [[str(i), "x", ""] for i in range(5)]
    outcomes = await judge_completions(PROBLEMS, texts, grader(SlowFirst()), seen.append)
    assert len(seen) == 15
    for i, (right, wrong, empty) in enumerate(outcomes):
        assert (right.problem_id, right.passed) == (f"fake/{i}", True)
        assert (wrong.code, empty.code) == ("x", None)


async def test_what_cannot_be_graded_takes_its_place_and_stops_nobody():
    problems = [PROBLEMS[0], stdin_problem(), PROBLEMS[2]]
    outcomes = await judge_completions(problems, [["0"], ["1"], ["2"]], grader(FakeSandbox()))
    assert isinstance(outcomes[1][0], DataError)
    assert [isinstance(group[0], Verdict) for group in outcomes] == [True, False, True]
    down = await judge_completions(PROBLEMS, [["1"]] * 5, grader(FakeSandbox(failures=9)))
    assert all(isinstance(group[0], UngradableError) for group in down)


async def test_a_bug_is_not_swallowed():
    def answer(source, given):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await judge_completions(PROBLEMS, [["1"]] * 5, grader(FakeSandbox(answer)))


async def test_the_bound_holds():
    sandbox = FakeSandbox(lambda *_: Execution(status=Status.finished), delay_s=0.002)
    await judge_completions(PROBLEMS, [list("1234")] * 5, grader(sandbox), max_concurrency=4)
    assert sandbox.most_running == 4


async def test_groups_must_match_problems():
    with pytest.raises(ValueError, match="groups"):
        await judge_completions(PROBLEMS, [["1"]], grader(FakeSandbox()))
