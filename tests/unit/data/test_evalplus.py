"""HumanEval+ and MBPP+: expected values from the solution; typed arguments; two scores."""

import json
from dataclasses import replace

import pytest

from coding_model_project.data.loaders import evalplus, load
from coding_model_project.data.loaders.evalplus import typed
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.grading.execution import ExecutionGrader
from tests.tables import tables
from tests.unit.data.rows import published as rows

CASES = tables("data")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "coding_model_project" / "expected"


def loaded(tmp_path, name, *content):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return load(name, path=path)


@pytest.fixture
def solved(monkeypatch):
    """Ids of the problems whose solutions ran."""
    ran, run = [], evalplus.computed

    async def counted(sandbox, problem):
        ran.append(problem.id)
        return await run(sandbox, problem)

    monkeypatch.setattr(evalplus, "computed", counted)
    return ran


@pytest.mark.sandbox
def test_expected_values_are_what_the_solution_returns(tmp_path):
    (problem,) = loaded(tmp_path, "humaneval_plus", rows.HUMANEVAL_PLUS).problems
    assert (problem.id, problem.split, problem.base_tests) == ("humaneval_plus/999", "test", 2)
    assert [test.expected for test in problem.tests] == [
        1.0,
        0.5,
        -1.625,
        123456789012345678901234567890 / 4,
    ]
    assert problem.tests[3].input.args == (123456789012345678901234567890,)  # not as a float
    assert (problem.comparison, problem.atol, problem.rtol) == ("evalplus", 0.0, 1e-7)
    write_problems(tmp_path / "own.jsonl", [problem])
    assert read_problems(tmp_path / "own.jsonl") == (problem,)


@pytest.mark.sandbox
def test_values_are_computed_once_and_again_if_their_file_is_damaged(tmp_path, cache, solved):
    first = loaded(tmp_path, "mbpp_plus", rows.MBPP_PLUS).problems
    assert first[0].tests[0].expected == [(1, 2)]
    assert loaded(tmp_path, "mbpp_plus", rows.MBPP_PLUS).problems == first
    assert solved == ["mbpp_plus/999"]
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert loaded(tmp_path, "mbpp_plus", rows.MBPP_PLUS).problems == first
    kept.write_bytes(b"")
    assert loaded(tmp_path, "mbpp_plus", rows.MBPP_PLUS).problems == first
    assert solved == ["mbpp_plus/999"] * 3
    other = {**rows.MBPP_PLUS, "base_input": [[[1, 3]]]}
    assert loaded(tmp_path, "mbpp_plus", other).problems[0].tests[0].expected == [(1, 3)]


@pytest.mark.sandbox
def test_a_solution_that_fails_is_set_aside_and_a_value_too_large_is_left_out(tmp_path):
    failing = {**rows.HUMANEVAL_PLUS, "plus_input": [["text"]]}
    (aside,) = loaded(tmp_path, "humaneval_plus", failing).set_aside
    assert "its solution fails on input 2: raised: TypeError" in aside.reason
    large = {
        **rows.HUMANEVAL_PLUS,
        "canonical_solution": "    return 'x' * int(x)\n",
        "plus_input": [[1 << 25]],
    }
    found = loaded(tmp_path, "humaneval_plus", large)
    assert [test.expected for test in found.problems[0].tests] == ["xxxx", "xx"]
    assert "humaneval_plus/999: 1 of 3 inputs left out" in found.notes[-1]


@pytest.fixture(scope="module")
def quarter(tmp_path_factory):
    """The problem above, with a shorter limit."""
    folder = tmp_path_factory.mktemp("evalplus")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder))
        (problem,) = loaded(folder, "humaneval_plus", rows.HUMANEVAL_PLUS).problems
    return replace(problem, limits=replace(problem.limits, cpu_s=0.3))


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("body", "base", "plus"),
    CASES["benchmarks own"],
    ids=["right", "wrong on further inputs", "wrong", "wrong on an own input", "endless"],
)
@pytest.mark.parametrize("stop_early", [False, True], ids=["all tests", "until one fails"])
async def test_the_benchmarks_own_tests_have_a_score_of_their_own(
    any_sandbox, quarter, body, base, plus, stop_early
):
    grader = ExecutionGrader(any_sandbox, stop_early=stop_early, stop_at_limit=True)
    verdict = await grader.grade_code(quarter, f"def quarter(x):\n    {body}\n")
    assert (verdict.base_passed, verdict.passed) == (base, plus)


@pytest.mark.parametrize(
    ("assertion", "given", "typed_as"),
    [
        ("assert f([(1, 2)], 3)", [[[4, 5], []], 3], [[(4, 5), ()], 3]),
        ("assert f((1, (2, 3)), [4])", [[1, [2]], [4]], [(1, (2,)), [4]]),
        ("assert f([1]) and f((1,))", [[1]], [[1]]),
        ("assert f({'a': (1, 2)})", [{"b": [3, 4]}], [{"b": (3, 4)}]),
        ("assert f([{1, 2}, {}])", [[[5], []]], [[{5}, {}]]),
        ("assert f(1j)", ["1j"], [1j]),
        ("assert f(set([1]), 7 * 7)", [[2], 9], [{2}, 9]),
    ],
)
def test_arguments_have_the_types_of_the_assertions(assertion, given, typed_as):
    (found,) = typed("Mbpp/999", assertion, "f", [given])
    assert repr(found) == repr(typed_as)


def test_nine_tasks_have_types_of_their_own():
    assert typed("Mbpp/98", "assert f((1, 2))", "f", [[[1]]]) == [[[1]]]
    assert typed("Mbpp/580", "assert f((1, 2))", "f", [[[1, [2, [3]]]]]) == [[(1, (2, (3,)))]]
    assert repr(typed("Mbpp/124", "assert f(0, 1j)", "f", [["0", "1j"]])) == "[[0.0, 1j]]"
