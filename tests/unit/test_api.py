"""The public Python API: light to import, and usable from scripts, event loops, threads and forks."""

import contextlib
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

import coding_model_project as cmp
from coding_model_project.grading.wellformed import check_problem
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from tests import api_page
from tests.processes import ran
from tests.text_cases import sources

ADD = cmp.Problem.simple("Add two numbers.", tests=[cmp.Test(cmp.Stdin("1 2"), expected="3")])
RIGHT = "print(sum(map(int, input().split())))"


def script(code: str, *, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return ran([sys.executable, "-c", code], input=stdin, timeout=60)


SOURCES = sources(__file__)
PRELUDE = SOURCES["prelude"]


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_the_page_shows_the_docstrings():
    assert api_page.PAGE.read_text() == api_page.page(), "run: python -m tests.api_page --write"
    assert set(api_page.ORDER) == set(cmp.__all__) - {"__version__"} <= set(dir(cmp))
    with pytest.raises(AttributeError, match="no attribute 'juge'"):
        cmp.juge  # noqa: B018


@pytest.mark.sandbox
async def test_maths_and_instructions_are_judged_too_inside_a_running_loop():
    asked = {"split": "train", "statement": "?", "tests": (), "language": "text"}
    sums = cmp.Problem(id="sums/1", answer="1/2", **asked)
    assert cmp.judge(sums, r"It is \boxed{\frac{4}{8}}").passed
    rule = cmp.Instruction("punctuation:no_comma")
    rules = cmp.Problem(id="rules/1", instructions=(rule,), **asked)
    assert cmp.judge(rules, "a, b").error is cmp.ErrorType.wrong_answer
    again = cmp.Problem.simple("Add two numbers.", tests=[])
    assert again.id == ADD.id != cmp.Problem.simple("Add three.", tests=[]).id


@pytest.mark.parametrize("given", ["docker", "", [], ["http://a", "b"], None, 3])
def test_a_sandbox_that_does_not_exist_is_refused(given):
    with pytest.raises(cmp.ConfigError, match='expected "embedded", the URL'):
        cmp.Judge(sandbox=given)


def test_other_arguments_that_make_no_sense_are_refused():
    with pytest.raises(cmp.ConfigError, match="workers=0: expected a whole number of at least 1"):
        cmp.Judge(workers=0)
    with pytest.raises(cmp.ConfigError, match="no tier 'fortress'"):
        cmp.Judge(min_tier="fortress")
    for retry_s in (-1, float("nan"), "3", True):
        with pytest.raises(cmp.ConfigError, match=r"retry_s=.*: expected seconds of at least 0"):
            cmp.Judge(retry_s=retry_s)


@pytest.mark.timeout(60)
async def test_a_server_that_does_not_answer_is_given_up_after_retry_s():
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # nobody listens
        judge = cmp.Judge(sandbox=f"http://127.0.0.1:{dead.getsockname()[1]}", retry_s=0.2)
        with pytest.raises(cmp.SandboxError, match="127"):
            await judge.__aenter__()


def test_a_printed_verdict_shows_its_outcome_and_its_repr_every_field():
    right = cmp.TestResult(error=None)
    wrong = cmp.TestResult(error=cmp.ErrorType.wrong_answer, detail="got 4")
    verdict = cmp.Verdict(
        problem_id="mine/1", code="print(4)", extraction="given", results=(right, wrong),
        n_tests=2, comparison="tokens", sandbox="fake", grader_version="0",
    )  # fmt: skip
    failed = "passed=False, error='wrong_answer', 1 of 2 tests, detail='got 4'"
    assert str(verdict) == f"Verdict('mine/1', {failed})"
    passed = replace(verdict, results=(right, right))
    assert str(passed) == "Verdict('mine/1', passed=True, 2 of 2 tests)"
    none = replace(verdict, code=None, results=())
    assert str(none) == "Verdict('mine/1', passed=False, error='no_code', 0 of 2 tests)"
    assert repr(verdict).startswith("Verdict(problem_id='mine/1', code='print(4)', extraction=")


async def test_a_judge_that_was_not_started_says_so():
    with pytest.raises(cmp.SandboxError, match="async with Judge"):
        await cmp.Judge().grade(ADD, RIGHT)


async def test_as_many_problems_as_completions():
    with pytest.raises(ValueError, match="2 problems for 1 completions"):
        await cmp.Judge().grade_many([ADD, ADD], [RIGHT])


def test_problems_of_a_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"id": "a/1", "split": "train", "statement": "", "tests": [{"stdin": "", "expected": ""}]}\n'
        '{"id": "a/2", "split": "test", "statement": "", "tests": [{"stdin": "", "expected": ""}]}\n'
    )
    assert [problem.id for problem in cmp.load(path)] == ["a/1", "a/2"]
    assert [problem.id for problem in cmp.load(str(path), split="test")] == ["a/2"]
    with pytest.raises(cmp.ConfigError, match=r"split=validation.*: mine has only train, test"):
        cmp.load(path, split="validation")
    with pytest.raises(cmp.ConfigError, match="no such data set"):
        cmp.load("no_such_set")


PASSES = cmp.Test(cmp.Stdin("1 2"), expected="3")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tests": ["1 2"]}, "test 0: expected a cmp.Test, got text"),
        ({"tests": [cmp.Test("1 2", expected="3")]}, "input: expected cmp.Stdin, cmp.Call or"),
        ({"tests": [cmp.Test(cmp.Stdin(3), expected="3")]}, r"Stdin\(3\): expected text, got int"),
        ({"tests": [cmp.Test(cmp.Stdin("1"), expected=3)]}, "a Stdin needs text, such as"),
        ({"tests": [PASSES, cmp.Test(cmp.Call("f", 1), expected=1)]}, r"test 1: Call\('f', 1\)"),
        ({"tests": [cmp.Test(cmp.Call("f", "ab"), expected=1)]}, r"\('ab',\)"),
        ({"tests": [cmp.Test(cmp.Call("f", (object(),)), expected=1)]}, "not plain data"),
        ({"tests": [cmp.Test(cmp.Call("f", ()), expected=object())]}, "not plain data"),
        ({"tests": [cmp.Test(cmp.Asserts(" ", "f"))]}, "source of assert statements"),
        ({"tests": [cmp.Test(cmp.Asserts("f(1)"), expected=1)]}, "expected=1"),
        ({"limits": {"cpu_s": 5}}, r"expected cmp.Limits\(cpu_s=5\)"),
        ({"limits": cmp.Limits(cpu_s=-1)}, "limits.cpu_s=-1: expected a number above 0"),
        ({"limits": cmp.Limits(wall_s=float("inf"))}, "limits.wall_s=inf"),
        ({"limits": cmp.Limits(memory_mb=512.5)}, "expected a whole number above 0"),
        ({"id": 3}, "id=3: expected text"),
    ],
)
def test_a_problem_that_makes_no_sense_is_not_blamed_on_the_program(changes, says):
    problem = cmp.Problem.simple("x", **({"tests": [PASSES]} | changes))
    with pytest.raises(cmp.DataError, match=says):
        check_problem(problem)


def test_a_call_without_its_expected_value_is_no_test():
    with pytest.raises(TypeError, match="expected"):
        cmp.Test(cmp.Call("f", (1,)))
    assert cmp.Test(cmp.Call("f", (1,)), expected=None).expected is None
    assert cmp.Test(cmp.Asserts("assert f(1)")).expected is None


def test_a_checker_is_no_text():
    with pytest.raises(cmp.DataError, match=r"cmp.Checker\(source"):
        check_problem(replace(ADD, checker="import sys", comparison="checker"))


@pytest.mark.parametrize("completion", [None, 3, b"print(3)", [{"role": "assistant"}]])
async def test_a_completion_is_text(completion):
    with pytest.raises(TypeError, match=r"completion\[1\]: expected the model's text, got"):
        await cmp.Judge().grade_many(ADD, [RIGHT, completion])
    with pytest.raises(TypeError, match="expected a list of texts, got text"):
        await cmp.Judge().grade_many(ADD, RIGHT)
    with pytest.raises(TypeError, match=r"problem\[0\]: expected a cmp.Problem, got str"):
        await cmp.Judge().grade_many(["mine/1"], [RIGHT])


def test_what_cannot_be_loaded_says_why(tmp_path):
    with pytest.raises(cmp.ConfigError, match=r"nofile\.json: no such file"):
        cmp.load("nofile.json")
    with pytest.raises(cmp.ConfigError, match=r"split=trian \(--split\): humaneval has only test"):
        cmp.load("humaneval", split="trian")
    with pytest.raises(cmp.ConfigError, match="max_tests=0: must be at least 1"):
        cmp.load("tinycode", max_tests=0)


@pytest.mark.sandbox
@pytest.mark.parametrize("fenced", [True, False])
def test_a_misspelt_language_is_no_programs_fault(fenced):
    problem = cmp.Problem.simple("x", tests=[PASSES], language="Python")
    with pytest.raises(cmp.ConfigError, match=r"language=Python: .* lower case; use python"):
        cmp.judge(problem, f"```python\n{RIGHT}\n```" if fenced else RIGHT, bare=not fenced)


@pytest.mark.sandbox
def test_judging_in_a_script_that_then_ends_cleanly():
    done = script(PRELUDE + "print(cmp.judge(problem, RIGHT, bare=True).passed)")
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


@pytest.mark.sandbox
def test_a_forked_child_judges_with_a_sandbox_of_its_own():
    done = script(PRELUDE + SOURCES["forked child"])
    assert done.stdout == "no_code\nTrue\nwrong_answer\n", done.stderr


@pytest.mark.sandbox
def test_an_interpreter_that_ends_while_a_program_runs_waits_for_nothing_and_leaves_nothing():
    done = script(PRELUDE + SOURCES["ends while a program runs"])
    pids, seconds = done.stdout.splitlines()
    assert len(pids.split()) >= 3
    assert float(seconds) < 10  # not the program's wall-clock limit, 15 s, twice
    deadline = time.monotonic() + 10  # a busy machine ends them a moment later
    while any(alive(int(pid)) for pid in pids.split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.sandbox
async def test_a_judge_of_many():
    async with cmp.Judge(workers=2, bare=True) as judge:
        verdicts = await judge.grade_many(ADD, [RIGHT, "print(4)", "1/0", RIGHT], progress=True)
        untested = cmp.Problem.simple("Untested.", tests=[])
        with pytest.raises(cmp.DataError, match="has no hidden tests"):
            await judge.grade_many([ADD, untested], [RIGHT, RIGHT])
        kept, lost = await judge.grade_many([ADD, untested], [RIGHT, "1"], return_errors=True)
    async with cmp.Judge(sandbox=EmbeddedSandbox(workers=1)) as own:
        with ThreadPoolExecutor(4) as pool:  # `judge` from threads, beside it
            calls = [pool.submit(cmp.judge, ADD, f"print({n})", bare=True) for n in range(2, 5)]
            assert (await own.grade(ADD, RIGHT, bare=True)).passed
            assert [call.result().passed for call in calls] == [False, True, False]
    assert [verdict.error for verdict in verdicts] == [None, "wrong_answer", "runtime_error", None]
    assert verdicts[3].cached or verdicts[0].cached
    assert kept.cached
    assert isinstance(lost, cmp.DataError)
