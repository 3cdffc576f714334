"""Windows of days, and rates by difficulty, by month and around a cut-off."""

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.dates import Window
from coding_model_project.evaluation.statistics.parts import part_metrics
from coding_model_project.evaluation.statistics.scores import dataset_metrics
from coding_model_project.evaluation.tables import metrics_table, months_table
from coding_model_project.types import Problem
from tests.synthetic_evaluations import result

DATES = {"a": "2024-07-30", "b": "2024-08-01", "c": "2024-08-31", "d": "2024-10-02"}


def problem(name: str, date: str | None, difficulty: int | None = None) -> Problem:
    return Problem(id=name, split="test", statement="x", tests=(), date=date, difficulty=difficulty)


PROBLEMS = [problem(*item, difficulty=number % 2 + 1) for number, item in enumerate(DATES.items())]


@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [
        (None, None, "abcd"),
        ("2024-08-01", None, "bcd"),
        (None, "2024-08-31", "abc"),
        ("2024-08-01", "2024-08-31", "bc"),
    ],
)
def test_a_window_holds_both_its_ends(first, last, kept):
    window = Window.parse(first, last)
    assert "".join(one.id for one in window.cut(PROBLEMS, "lcb")) == kept


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [
        ("2025-01-01", None, "lcb: no problems within --from 2025-01-01"),
        ("2024-08-01", "2024-07-01", "coding.evaluation.to_date=2024-07-01: must not be before"),
        ("August", None, "coding.evaluation.from_date=August: expected a day"),
    ],
)
def test_an_empty_window_and_what_is_no_day_are_refused(first, last, says):
    with pytest.raises(ConfigError, match=says):
        Window.parse(first, last).cut(PROBLEMS, "lcb")


def test_a_window_needs_dates_and_no_window_needs_none():
    undated = [problem("a", None)]
    assert Window().cut(undated, "humaneval") == tuple(undated)
    with pytest.raises(ConfigError, match="humaneval: 1 of 1 problems have no date"):
        Window.parse("2024-01-01", None).cut(undated, "humaneval")


def test_rates_of_parts_are_over_their_graded_problems():
    graded = {"a": True, "b": True, "c": False, "d": None}
    results = [result("lcb", name, 0, passed) for name, passed in graded.items()]
    found = part_metrics(results, PROBLEMS, (1,), "2024-08-01")
    rates = {month: part["1"]["value"] for month, part in found["by_month"].items()}
    assert rates == {"2024-07": 1.0, "2024-08": 0.5}
    by_difficulty = {k: v["1"] for k, v in found["by_difficulty"].items()}
    assert [(v["value"], v["problems"]) for v in by_difficulty.values()] == [(0.5, 2), (1.0, 1)]
    cutoff = found["cutoff"]
    assert cutoff["day"] == "2024-08-01"
    assert (cutoff["before"]["1"]["problems"], cutoff["from"]["1"]["problems"]) == (1, 2)
    metrics = {"lcb": dataset_metrics(results, (1,)) | found}
    shown = metrics_table(metrics, (1,))
    assert "lcb, difficulty 1" in shown
    assert "lcb, from 2024-08-01" in shown
    (months,) = months_table(metrics)
    (marked,) = (line for line in months.splitlines() if "cut-off 2024-08-01" in line)
    assert marked.startswith("2024-08")


def test_ratings_and_undated_problems_make_no_parts():
    many = [problem(str(n), None, difficulty=800 + 100 * n) for n in range(20)]
    assert part_metrics([result("lcb", one.id, 0, True) for one in many], many, (1,)) == {}
