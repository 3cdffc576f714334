"""Every way a program can end has its exact error; a failing sandbox never has a score."""

import asyncio
from dataclasses import replace

import pytest

from coding_model_project.errors import DataError, HarborError, OverloadError, SandboxError
from coding_model_project.grading.base import AUTO, harbor_identity
from coding_model_project.grading.execution import ExecutionGrader, checked_tests, judge_execution
from coding_model_project.grading.judge import GraderByProblem, start_graders
from coding_model_project.grading.kinds import Parts
from coding_model_project.grading.retries import CircuitBreaker, Limiter
from coding_model_project.harbor import task_grader
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.sandbox.base import SharesCalls
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox
from coding_model_project.types import (
    Asserts,
    Call,
    Checker,
    ErrorType,
    Execution,
    Isolation,
    Limits,
    Opaque,
    Status,
    Stdin,
    Test,
)
from tests.fakes import FakeSandbox, stdin_problem

PROBLEM = stdin_problem(("a", "1"), ("b", "1"), ("c", "1"))


def grader(sandbox, **options):
    return ExecutionGrader(sandbox, **{"stop_early": False} | options)


def scripted(*statuses):
    """A sandbox whose executions end in turn with these statuses, then finish with "1"."""
    script = list(statuses)

    def answer(source, given):
        status = script.pop(0) if script else Status.finished
        return Execution(status=status, stdout="1", stderr_tail=f"it was {status}")

    return FakeSandbox(answer)


async def test_a_verdict_says_how_it_came_about():
    sandbox = FakeSandbox()
    verdict = await grader(sandbox).grade_code(PROBLEM, "1")
    assert (verdict.passed, verdict.error, verdict.pass_fraction) == (True, None, 1.0)
    assert (verdict.extraction, verdict.sandbox) == ("given", sandbox.identity)
    none = await grader(sandbox).grade_code(PROBLEM, None)
    assert (none.passed, none.error, none.pass_fraction) == (False, ErrorType.no_code, 0)
    assert len(sandbox.calls) == 1
    tests = (Test(input=Stdin("p"), expected="2", public=True), *PROBLEM.tests)
    both = stdin_problem(tests=tests)
    assert (await grader(sandbox).grade_code(both, "1")).passed
    assert (await grader(sandbox, public=True).grade_code(both, "2")).n_tests == 1


async def test_dense_runs_all_and_sparse_stops_at_the_first_failure():
    dense = await grader(FakeSandbox()).grade_code(PROBLEM, "2")
    sparse = await grader(FakeSandbox(), stop_early=True).grade_code(PROBLEM, "2")
    assert [len(dense.results), len(sparse.results), sparse.n_tests] == [3, 1, 3]
    assert not sparse.passed and sparse.error is ErrorType.wrong_answer
    assert "'1'" in sparse.results[0].detail and "'2'" in sparse.results[0].detail


@pytest.mark.parametrize("limit", ["timeout", "memory_limit", "output_limit"])
async def test_a_program_that_used_up_a_limit_is_not_run_on_further_tests_if_so_asked(limit):
    spent = Status.cpu_timeout if limit == "timeout" else Status(limit)

    def answer(source, given):
        is_second = given == PROBLEM.tests[1].input
        return Execution(status=spent if is_second else Status.finished, stdout="1")

    dense = await grader(FakeSandbox(answer)).grade_code(PROBLEM, "1")
    stopped = await grader(FakeSandbox(answer), stop_at_limit=True).grade_code(PROBLEM, "1")
    assert [len(dense.results), len(stopped.results)] == [3, 2]
    assert stopped.error is ErrorType(limit)
    wrong = await grader(FakeSandbox(), stop_at_limit=True).grade_code(PROBLEM, "2")
    assert len(wrong.results) == 3


async def test_a_wrong_program_is_not_run_on_further_tests_once_it_took_long_if_so_asked():
    def answer(source, given):
        return Execution(status=Status.finished, stdout=source, cpu_s=40.0)

    async def n_run(program, **how):
        return len((await grader(FakeSandbox(answer), **how).grade_code(PROBLEM, program)).results)

    assert await n_run("2") == 3
    assert await n_run("2", stop_at_limit=True) == 2
    assert await n_run("1", stop_at_limit=True) == 3, "a right one is always judged whole"


async def test_a_verdict_names_a_tolerance_that_is_not_the_default():
    calls = Test(input=Call(function="f"), expected=1.0)
    problem = replace(PROBLEM, tests=(*PROBLEM.tests, calls), atol=0.01, rtol=0.0)
    verdict = await grader(FakeSandbox()).grade_code(problem, None)
    assert verdict.comparison == "tokens(atol=0.01,rtol=0)+value(atol=0.01,rtol=0)"
    exact = replace(PROBLEM, comparison="exact", atol=0.01)
    assert (await grader(FakeSandbox()).grade_code(exact, None)).comparison == "exact"


@pytest.mark.sandbox
@pytest.mark.parametrize("form", ["asserts", "calls"])
@pytest.mark.parametrize(("isolation", "passed"), [("shared", 3), ("per_test", 1)])
async def test_a_verdict_names_what_its_tests_saw_of_one_another(form, isolation, passed):
    counts = "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)"
    asserts = tuple(Test(Asserts(f"assert f() == {n}", "f")) for n in (1, 2, 3))
    calls = tuple(Test(Call("f"), expected=n) for n in (1, 2, 3))
    tests = asserts if form == "asserts" else calls
    problem = replace(PROBLEM, tests=tests, isolation=Isolation(isolation))
    async with EmbeddedSandbox(workers=1) as sandbox:
        verdict = await grader(sandbox).grade_code(problem, counts)
    assert verdict.isolation == isolation
    assert verdict.pass_fraction == passed / 3


async def test_a_sandbox_that_cannot_share_calls_is_not_said_to():
    """SandboxFusion and the sandboxes of users run each call in its own process."""
    sandbox = FakeSandbox(lambda *_: Execution(status=Status.finished, value=1))
    tests = (Test(Call("f"), expected=1),) * 2
    problem = replace(PROBLEM, tests=tests, isolation=Isolation.shared)
    assert (await grader(sandbox).grade_code(problem, "")).isolation == "per_test"
    (_, inputs) = sandbox.calls[0]
    assert not any(given.continues for given in inputs)
    asserts = replace(problem, tests=(Test(Asserts("assert f()")),) * 2)
    assert (await grader(sandbox).grade_code(asserts, "")).isolation == "shared"
    assert not isinstance(FusionSandbox(["http://localhost:1"]), SharesCalls)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((status, "runtime_error") for status in ("raised", "signalled", "killed")),
        *((status, "timeout") for status in ("cpu_timeout", "wall_timeout")),
        *((s, s) for s in ("syntax_error", "compile_error", "memory_limit", "output_limit")),
    ],
)
async def test_every_status_has_its_error(status, error):
    ends = [Status(status)] * 6
    verdict = await grader(scripted(*ends), stop_early=True).grade_code(PROBLEM, "1")
    assert verdict.error is ErrorType(error)
    assert f"it was {status}" in verdict.results[0].detail


@pytest.mark.parametrize(
    "problem",
    [
        stdin_problem(),
        stdin_problem(("", "1"), comparison="fuzzy"),
        stdin_problem(tests=(Test(input=Stdin("")),)),
        *(
            stdin_problem(tests=(Test(input=Asserts(source)),))
            for source in (
                "def test_f():\n    assert f(1) == 2\n",
                "import math\nf(1) == 2",
                "from solution import f\nassert f(1) == 2",
            )
        ),
        *(
            stdin_problem(("", "1"), comparison="checker", checker=Checker(source=source))
            for source in ("print('WA')", "def check(given, output):\n    return True\n")
        ),
    ],
)
async def test_bad_data_has_no_verdict(problem):
    for completion in ("1", ""):
        with pytest.raises(DataError):
            await grader(FakeSandbox()).grade_code(problem, completion)


def test_an_unknown_comparison_names_the_nearest():
    with pytest.raises(DataError, match=r"fake/1: comparison='lastline'.*mean last_line"):
        checked_tests(stdin_problem(("", "1"), comparison="lastline"), public=False)


@pytest.mark.parametrize("said", ["", "the tests ended without a word"])
async def test_a_time_out_names_the_limit_that_ended_it(said):
    limits = Limits(cpu_s=5, wall_s=12.5)
    cpu = "CPU time limit of 5 s (7.5 s for the first test that exceeds it)"
    for status, line in (("cpu_timeout", cpu), ("wall_timeout", "wall-clock limit of 12.5 s")):
        late = FakeSandbox(lambda *_, s=status: Execution(status=Status(s), stderr_tail=said))
        verdict = await grader(late).grade_code(stdin_problem(("", "1"), limits=limits), "x")
        assert verdict.results[0].detail == "\n".join(filter(None, (line, said)))


async def test_an_expected_output_never_enters_the_sandbox():
    sandbox = FakeSandbox()
    await grader(sandbox).grade_code(stdin_problem(("in", "SECRET")), "1")
    assert "SECRET" not in repr(sandbox.calls)


# ── kills that may be the machine's doing ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("stop_early", [True, False])
@pytest.mark.parametrize("status", [Status.wall_timeout, Status.memory_limit, Status.killed])
async def test_a_kill_that_does_not_come_again_is_not_blamed_on_the_program(status, stop_early):
    sandbox = scripted(Status.finished, status)
    verdict = await grader(sandbox, stop_early=stop_early).grade_code(PROBLEM, "1")
    assert verdict.passed
    assert len(sandbox.calls) == 2
    assert sandbox.calls[1][1] == [Stdin("b"), Stdin("c")]


async def test_a_kill_that_comes_again_is_the_programs_and_costs_one_more_test():
    sandbox = scripted(*[Status.wall_timeout] * 4)
    verdict = await grader(sandbox).grade_code(PROBLEM, "1")
    assert [r.error for r in verdict.results] == [ErrorType.timeout] * 3
    assert len(sandbox.calls) == 2


@pytest.mark.parametrize("stop_early", [True, False])
@pytest.mark.parametrize(("needs_s", "error"), [(7.4, None), (7.6, ErrorType.timeout)])
async def test_half_as_much_cpu_time_again_is_forgiven(stop_early, needs_s, error):
    verdict = await grader(Busy({"b": needs_s}), stop_early=stop_early).grade_code(PROBLEM, "1")
    assert verdict.error is error


@pytest.mark.parametrize("stop_early", [True, False])
async def test_but_only_once_in_a_program(stop_early):
    sandbox = Busy({"a": 6.0, "b": 6.0})
    verdict = await grader(sandbox, stop_early=stop_early).grade_code(PROBLEM, "1")
    assert [r.error for r in verdict.results[:2]] == [None, ErrorType.timeout]


class Busy(FakeSandbox):
    """Programs that need so many CPU seconds on these inputs, and none on others."""

    def __init__(self, needed_s):
        super().__init__()
        self.needed_s = needed_s

    async def run(self, program, inputs, limits, *, stop_when=None):
        def answer(_source, given):
            used_s = min(self.needed_s.get(given.text, 0.0), limits.cpu_s)
            late = self.needed_s.get(given.text, 0.0) > limits.cpu_s
            status = Status.cpu_timeout if late else Status.finished
            return Execution(status=status, stdout="1", cpu_s=used_s)

        self.answer = answer
        return await super().run(program, inputs, limits, stop_when=stop_when)


async def test_a_kill_is_run_again_alone():
    sandbox = FakeSandbox(lambda *_: Execution(status=Status.wall_timeout), delay_s=0.005)
    together: list[int] = []
    original = sandbox.run

    async def run(program, inputs, limits, *, stop_when=None):
        again = len([call for call in sandbox.calls if call[0] == program.source]) > 0
        executions = await original(program, inputs, limits, stop_when=stop_when)
        if again:
            together.append(sandbox.running)
        return executions

    sandbox.run = run
    judge = grader(sandbox, limiter=Limiter(3))
    await asyncio.gather(*(judge.grade_code(PROBLEM, str(n)) for n in range(9)))
    assert together
    assert set(together) == {0}


async def test_a_program_that_the_machine_ended_runs_again_alone_whatever_it_costs():
    judge = grader(Overloaded(20), breaker=CircuitBreaker(min_samples=4))
    for _ in range(10):
        assert (await judge.grade_code(PROBLEM, "1")).passed


async def test_a_program_that_the_machine_ended_twice_is_ungradable_and_counts_as_a_failure():
    breaker = CircuitBreaker()
    with pytest.raises(OverloadError):
        await grader(Overloaded(1, 2), breaker=breaker).grade_code(PROBLEM, "1")
    assert breaker.failure_rate == 1.0


class Overloaded(FakeSandbox):
    """A sandbox whose machine ends each of the first programs as often as it says."""

    def __init__(self, n, times=1):
        super().__init__()
        self.left = [True, False] * n if times == 1 else [True] * times

    async def run(self, *of, **options):
        if self.left and self.left.pop(0):
            raise OverloadError("out of memory")
        return await super().run(*of, **options)


async def test_reruns_have_a_budget():
    sandbox = FakeSandbox(lambda *_: Execution(status=Status.wall_timeout), delay_s=0.01)
    judge = grader(sandbox, stop_early=True)
    for _ in range(20):
        await judge.grade_code(PROBLEM, "1")
    assert 20 < len(sandbox.calls) <= 24


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


async def test_one_bound_on_programs_at_once():
    sandbox = FakeSandbox(delay_s=0.002)
    judge = grader(sandbox, limiter=Limiter(3))
    await asyncio.gather(*(judge.grade_code(PROBLEM, "1") for _ in range(12)))
    assert sandbox.most_running == 3


async def test_the_breaker_ends_judging_when_the_sandbox_keeps_failing():
    sandbox = FakeSandbox(failures=100)
    judge = grader(sandbox, breaker=CircuitBreaker(window=10, max_rate=0.5, min_samples=4))
    for _ in range(4):
        with pytest.raises(SandboxError, match="down"):
            await judge.grade_code(PROBLEM, "1")
    with pytest.raises(SandboxError, match="infrastructure failure rate"):
        await judge.grade_code(PROBLEM, "1")
    assert len(sandbox.calls) == 4


def test_the_breaker_bears_what_is_within_its_rate_and_stays_open_once_it_opened():
    breaker = CircuitBreaker(window=4, max_rate=0.5, min_samples=4)
    for worked in (False, True, False, True, False, True):
        breaker.record(None if worked else SandboxError("down"))
        breaker.check()
    for _ in range(2):
        breaker.record(SandboxError("the server is away"))
    for _ in range(4):
        breaker.record()
    with pytest.raises(SandboxError, match="infrastructure failure rate"):
        breaker.check()


# ── details ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "value",
    ["é" * 10_000, 10**6000, [[["x" * 500] * 50] * 3], "\ud800" * 3000, Opaque("X" * 80)],
    ids=["text", "int", "nested", "surrogates", "opaque"],
)
def test_details_stay_within_two_kilobytes(value):
    test = Test(input=Call(function="f"), expected="é" * 5000)
    result = judge_execution(test, Execution(status=Status.finished, value=value), PROBLEM)
    assert result.error is ErrorType.wrong_answer
    assert len(result.detail.encode()) <= 2048
    raised = Execution(status=Status.raised, stderr_tail="é" * 5000 + "ValueError: last")
    detail = judge_execution(test, raised, PROBLEM).detail
    assert detail.endswith("ValueError: last")
    assert len(detail.encode()) <= 2048


@pytest.mark.sandbox
async def test_public_tests_run_for_what_failed_a_hidden_one_within_its_limits():
    public, hidden = (
        Test(input=Stdin("1"), expected="1", public=True),
        Test(input=Stdin("2"), expected="2"),
    )
    problem = stdin_problem(tests=(public, hidden))
    problem = replace(problem, limits=replace(problem.limits, cpu_s=0.2))
    programs = {
        "print(1)": True,
        "print(3)": False,
        "print(": False,
        "print(input())": True,
        "while input() == '2':\n    while True: pass\nprint(1)": None,
    }
    async with start_graders(EmbeddedSandbox(workers=1), at_once=1, stop_early=True) as judge:
        for source, passes in programs.items():
            verdict = await judge.hidden.grade_code(problem, source)
            assert await judge.passes_public(problem, verdict) is passes, source
        assert await judge.passes_public(stdin_problem(tests=(hidden,)), verdict) is None


ONE_TEST = stdin_problem(("", "1"))


def by_problem() -> GraderByProblem:
    executed = ExecutionGrader(FakeSandbox(), stop_early=True)
    return GraderByProblem(Parts(execution=executed, limiter=Limiter(1), tasks=task_grader))


async def test_each_problem_goes_to_its_grader(tmp_path):
    async with by_problem() as grader:
        assert (await grader.grade_code(ONE_TEST, "1")).passed
        with pytest.raises(HarborError, match=str(tmp_path)):
            await grader.grade_code(replace(ONE_TEST, task=str(tmp_path)), "1")


async def test_without_its_grader_a_task_is_ungradable(tmp_path):
    execution = ExecutionGrader(FakeSandbox(), stop_early=True)
    async with GraderByProblem(Parts(execution=execution, limiter=Limiter(1))) as grader:
        with pytest.raises(DataError, match=r"tasks=harbor\.task_grader"):
            await grader.grade_code(replace(ONE_TEST, task=str(tmp_path)), "1")


def test_the_identity_names_all_graders():
    assert HarborGrader(limiter=Limiter(1)).identity == harbor_identity(AUTO)
    assert f"+{harbor_identity(AUTO)}+math-verify " in by_problem().identity
