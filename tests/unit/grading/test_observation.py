import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.extract import extract
from coding_model_project.grading.observation import MIN_BYTES, can_repair, observation
from coding_model_project.grading.prompts import PromptStyle, solution_message, solve_messages
from coding_model_project.types import Asserts, Call, Execution, Status, Stdin, Test
from tests.fakes import FakeSandbox, stdin_problem

TRACEBACK = 'Traceback (most recent call last):\n  File "main.py", line 2, in solve\n'
ENDINGS = {
    "syntax_error": Execution(status=Status.syntax_error, stderr_tail="SyntaxError: never closed"),
    "runtime_error": Execution(status=Status.raised, stderr_tail=TRACEBACK + "IndexError: range"),
    "timeout": Execution(status=Status.cpu_timeout),
    "wrong_answer": Execution(status=Status.finished, stdout="7\n"),
}


def problem(*tests):
    return stdin_problem(tests=tests)


async def told(problem, ending, style=PromptStyle.bare, max_bytes=300, code="print(7)"):
    sandbox = FakeSandbox(answer=lambda *_: ending)
    grader = ExecutionGrader(sandbox, stop_early=True, public=True)
    verdict = await grader.grade_code(problem, code)
    return observation(problem, verdict, style=style, max_bytes=max_bytes)


SUM = problem(
    Test(input=Stdin("1 2\n"), expected="3\n", public=True),
    Test(input=Stdin("hidden in\n"), expected="hidden out\n"),
)


async def test_the_model_sees_the_error_the_test_and_what_came_of_it():
    async def content(error):
        return (await told(SUM, ENDINGS[error]))["content"]

    assert await content("wrong_answer") == "wrong_answer\n1 2\nexpected '3\\n', got '7\\n'"
    assert await content("runtime_error") == (
        "runtime_error\n1 2\nexpected '3\\n', got IndexError: range"
    )
    assert await content("timeout") == "timeout\n1 2\nexpected '3\\n', got timeout"
    assert await content("syntax_error") == "syntax_error\nSyntaxError: never closed"
    nothing = await told(SUM, ENDINGS["timeout"], code=None)
    assert nothing["content"] == "no_code\nThe answer holds no program."


@pytest.mark.parametrize("status", [Status.cpu_timeout, Status.wall_timeout])
@pytest.mark.parametrize(
    ("stderr", "got"),
    [("", "timeout"), ("a\nstep 3\n", "step 3"), ("wall-clock limit of 2 s", None)],
)
async def test_the_limit_of_a_time_out_is_not_told(status, stderr, got):
    seen = (await told(SUM, Execution(status=status, stderr_tail=stderr)))["content"]
    assert seen == f"timeout\n1 2\nexpected '3\\n', got {got or stderr}"
    asserts = problem(Test(input=Asserts(source="assert f() == 2"), public=True))
    silent = Execution(status=status, stderr_tail="the tests ended without a word")
    seen = (await told(asserts, silent))["content"]
    assert seen == "timeout\nassert f() == 2\nthe tests ended without a word"


async def test_a_fenced_observation_says_the_same_and_asks_for_a_block():
    message = await told(SUM, ENDINGS["wrong_answer"], PromptStyle.fenced)
    assert message["role"] == "user"
    for part in ("wrong_answer", "1 2", "expected '3\\n', got '7\\n'", "```python"):
        assert part in message["content"]
    assert extract(message["content"]).code is None  # nothing in it would be taken for an answer


async def test_calls_and_asserts_are_shown_as_one_would_write_them():
    call = problem(Test(input=Call(function="solve", args=([3, 1],)), expected=[1, 3], public=True))
    got = Execution(status=Status.finished, value=[3, 1])
    assert (await told(call, got))["content"] == (
        "wrong_answer\nsolve([3, 1])\nexpected [1, 3], got [3, 1]"
    )
    asserts = problem(Test(input=Asserts(source="assert solve(1) == 2"), public=True))
    failed = Execution(status=Status.finished, value="assert solve(1) == 2")
    assert "assert solve(1) == 2" in (await told(asserts, failed))["content"]


async def test_passing_the_public_tests_ends_it_whatever_the_hidden_ones_say():
    assert await told(SUM, Execution(status=Status.finished, stdout="3\n")) is None


async def test_a_verdict_of_hidden_tests_is_refused():
    grader = ExecutionGrader(FakeSandbox(), stop_early=True)
    verdict = await grader.grade_code(SUM, "print(7)")
    with pytest.raises(ValueError, match="hidden"):
        observation(SUM, verdict, style=PromptStyle.bare, max_bytes=300)


def test_without_public_tests_there_is_nothing_to_tell():
    assert can_repair(SUM)
    assert not can_repair(stdin_problem(("1", "2")))


TEXTS = st.text(max_size=200)


@given(
    public=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3),
    hidden=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3),
    status=st.sampled_from(Status),
    printed=TEXTS,
    style=st.sampled_from(PromptStyle),
    max_bytes=st.integers(MIN_BYTES, 500),
)
async def test_no_hidden_test_is_ever_in_it_and_it_is_never_too_long(
    public, hidden, status, printed, style, max_bytes
):
    """Hidden inputs and outputs are marked, so that no chance makes them equal to something shown."""
    tests = [Test(input=Stdin(a), expected=b, public=True) for a, b in public]
    tests += [Test(input=Stdin(f"§in{a}§"), expected=f"§out{b}§") for a, b in hidden]
    subject = problem(*tests)
    printed = printed.replace("§", "")
    ending = Execution(status=status, stdout=printed, stderr_tail=printed)
    message = await told(subject, ending, style, max_bytes)
    if message is None:
        return
    text = message["content"]
    shown = "".join(a + b for a, b in public)
    for marked in ("§in", "§out"):
        assert marked not in text or marked in shown
    assert len(text.encode()) <= max_bytes + 200


def test_no_test_is_shown_and_only_fenced_prompts_ask_for_a_fence():
    problem = stdin_problem(("secret in", "secret out"), statement="Add.")
    (bare,) = solve_messages(problem, style=PromptStyle.bare)
    (fenced,) = solve_messages(problem, style=PromptStyle.fenced)
    assert bare == {"role": "user", "content": "Add."}
    assert "```python" in fenced["content"]
    assert "secret" not in fenced["content"]


@pytest.mark.parametrize("language", ["python", "cpp", "javascript", "java", "go", "rust", "bash"])
def test_what_is_shown_as_an_answer_is_what_extract_finds(language):
    for style in PromptStyle:
        answer = solution_message("print(1)", style=style, language=language)["content"]
        found = extract(answer, language=language, bare=style is PromptStyle.bare)
        assert found.code is not None
        assert found.code.strip() == "print(1)"
