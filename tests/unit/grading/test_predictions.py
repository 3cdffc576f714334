"""Predictions: extraction of the answer, valid forms, and attempts that gain nothing."""

import asyncio

import pytest

from coding_model_project.data.loaders import load
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import ErrorType, Predicted, Prediction, Problem
from tests.fakes import FakeSandbox, judge_of
from tests.tables import tables

CASES = tables("predictions")

PROGRAM = (
    "SEEN = []\n\ndef f(items, n=1):\n    return [(len(SEEN), x) for x in sorted(items)[:n]]\n"
)
RETURNED = [(0, 2), (0, 3)]


def problem(of: Predicted, output: object = RETURNED, program: str = PROGRAM) -> Problem:
    return Problem(
        id="calls/1", split="test", statement="Predict.", tests=(), language="text",
        prediction=Prediction(of=of, program=program, output=output),
    )  # fmt: skip


def graded_on_host(of: Predicted, completion: str):
    """Judge, and make sure that nothing ran."""
    sandbox = FakeSandbox()
    verdict = asyncio.run(judge_of(sandbox).grade(problem(of), completion))
    assert not sandbox.calls
    return verdict


def graded(of: Predicted, *completions: str, **what):
    async def all_of_them():
        async with EmbeddedSandbox(workers=1, min_tier="rlimit") as sandbox:
            grader = judge_of(sandbox)
            return [await grader.grade(problem(of, **what), one) for one in completions]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("completion", CASES["right"])
def test_an_output_is_found_and_compared_as_python_does(completion):
    verdict = graded_on_host(Predicted.output, completion)
    assert (verdict.passed, verdict.error) == (True, None)


LONG = [("[" * 100_000, "no_code"), ("-" * 19_000 + "1", "syntax_error")]
LONG += [("0x" + "f" * 19_000, "wrong_answer")]  # more digits than Python prints


@pytest.mark.parametrize(("completion", "error"), [*CASES["wrong"], *LONG])
def test_what_is_no_right_output_has_its_error(completion, error):
    verdict = graded_on_host(Predicted.output, completion)
    assert (verdict.passed, verdict.error) == (False, ErrorType(error))


@pytest.mark.sandbox
def test_an_input_is_run_and_any_right_one_is_accepted():
    completions, errors = zip(*CASES["inputs"], strict=True)
    verdicts = graded(Predicted.input, *completions)
    assert [verdict.error for verdict in verdicts] == list(errors)
    assert verdicts[0].code == "f([3, 2], 2)"


@pytest.mark.parametrize("completion", [*CASES["cheats"], f"f(0x{'f' * 19_000})"])
def test_an_input_cannot_change_what_the_function_does(completion):
    verdict = graded_on_host(Predicted.input, completion)
    assert verdict.error is ErrorType.syntax_error


@pytest.mark.sandbox
def test_both_tasks_are_made_of_a_published_row(tmp_path):
    row = (
        '{"code": "def f(s):\\n    return s[::-1], len(s)", "input": "\'ab\'", '
        '"output": "(\'ba\', 2)", "id": "sample_7"}\n'
    )
    file = tmp_path / "cruxeval.jsonl"
    file.write_text(row)
    for name, shown in (
        ("cruxeval_o", "assert f('ab') == ??"),
        ("cruxeval_i", "f(??) == ('ba', 2)"),
    ):
        (one,) = load(name, path=file).problems
        assert one.id == f"{name}/7"
        assert shown in one.statement
        assert one.prediction is not None
        (verdict,) = graded(
            one.prediction.of,
            one.gold[0],
            output=one.prediction.output,
            program=one.prediction.program,
        )
        assert verdict.passed
