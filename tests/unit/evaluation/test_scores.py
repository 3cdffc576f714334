from __future__ import annotations

import math

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.plan import Window
from coding_model_project.evaluation.scores import dataset_metrics, part_metrics
from coding_model_project.evaluation.tables import metrics_table, months_table
from coding_model_project.types import Problem
from tests import synthetic_evaluations


def result(problem, sample, passed, **changes):
    outcome = "memory_limit" if passed is False else passed
    plain = {"pass_fraction": None if passed is None else (1.0 if passed else 0.5), "judge_s": 1.0}
    return synthetic_evaluations.result("toy", problem, sample, outcome, **plain | changes)


def shown(name, metrics):
    """The table's lines by their names."""
    lines = metrics_table({name: metrics}, (1,)).splitlines()
    return {line.split("  ")[0]: line for line in lines}


def instructions(of, followed, loosely):
    """A verdict on instructions."""
    return {
        "n_tests": of, "passed": followed, "loose_passed": loosely == of,
        "followed_loosely": loosely,
    }  # fmt: skip


def test_what_is_counted_and_what_is_left_out():
    results = [
        result("a", 0, True),
        result("a", 1, False, truncated=True),
        result("b", 0, False, error="no_code", pass_fraction=0.0),
        result("b", 1, None),
        result("c", 0, None, ungradable="PromptError: too long"),
        result("c", 1, None, ungradable="FilteredError: no"),
        result("c", 1, None),
    ]
    found = dataset_metrics(results, ks=(1, 2))
    counts = ("problems", "samples", "graded", "ungradable", "refused", "filtered")
    assert [found[count] for count in counts] == [3, 7, 3, 4, 1, 1]
    assert found["problems_ungradable"] == 1
    assert found["accepted"] == pytest.approx(1 / 3)
    assert found["errors"]["runtime_error"] == pytest.approx(1 / 3)  # memory_limit's group
    assert found["error_types"] == {"memory_limit": 1, "no_code": 1}
    assert found["pass@k"]["1"]["value"] == pytest.approx((0.5 + 0.0) / 2)
    assert found["pass@k"]["2"]["problems"] == 1
    assert found["pass_ratio"]["value"] == pytest.approx((0.75 + 0.0) / 2)
    assert (found["truncated"], found["tokens"]["total"]) == (1, 70)


@pytest.mark.parametrize("passed", [True, False])
def test_a_rate_without_exception_still_has_its_doubt(passed):
    found = dataset_metrics([result(str(i), 0, passed) for i in range(100)], ks=(1,))
    rate = found["pass@k"]["1"]
    assert rate["value"] == float(passed)
    assert rate["high"] - rate["low"] == pytest.approx(0.037, abs=0.001)  # Wilson, 0 of 100


def test_no_pass_ratio_where_judging_stopped_early():
    results = [result("a", 0, False, pass_fraction=None), result("a", 1, True)]
    assert dataset_metrics(results, ks=(1,))["pass_ratio"] is None


def test_the_budget_curve_is_the_chance_to_have_found_an_accepted_sample():
    n, c = 4, 1
    results = [result("a", i, i < c, program=str(i)) for i in range(n)]
    budget = dataset_metrics(results, ks=(1,))["budget"]
    for curve, each in (("tokens", 10), ("judge_s", 1.0)):
        for point in budget[curve]:
            drawn = math.floor(point["budget"] / each + 1e-6)
            assert point["pass_rate"] == pytest.approx(drawn * c / n, abs=0.12)  # 200 orders
        assert budget[curve][-1]["pass_rate"] == 1.0
    rates = [point["pass_rate"] for point in budget["tokens"]]
    assert rates == sorted(rates)


def test_a_duplicate_costs_what_judging_it_cost_and_a_repair_its_own_judging():
    results = [
        result("a", 0, False, program="x"),
        result("a", 1, False, program="x", judge_s=0.0, verdict={"cached": True}),
        result("a", 2, True, program="y", repair_s=2.0),
    ]
    found = dataset_metrics(results, ks=(1,))
    assert found["cached"] == 1
    assert found["budget"]["judge_s"][-1]["budget"] == 5.0


def test_nothing_accepted_and_nothing_graded():
    nothing = dataset_metrics([result("a", i, False) for i in range(2)], ks=(1, 2))
    assert nothing["budget"]["tokens"][-1]["pass_rate"] == 0.0
    ungraded = dataset_metrics([result("a", 0, None)], ks=(1,))
    assert ungraded["pass@k"] == {}
    assert ungraded["budget"] is None


def test_instructions_have_their_loose_accuracy_beside_the_strict_one():
    outcomes = [(True, 2), (False, 2), (False, 1), (False, 0)]
    results = [
        result(f"p{n}", 0, passed, verdict=instructions(2, 2 * passed, loosely))
        for n, (passed, loosely) in enumerate(outcomes)
    ]
    found = dataset_metrics(results, ks=(1,))
    assert found["pass@k"]["1"]["value"] == 0.25
    assert found["loose"]["pass@k"]["1"]["value"] == 0.5
    assert found["loose"]["pass_ratio"]["value"] == 5 / 8
    line = shown("rules", found)["rules, loosely"]
    assert "50.0%" in line and "62.5%" in line
    assert "loose" not in dataset_metrics([result("p", 0, True)], ks=(1,))


def test_other_rules_have_a_line_each_by_their_names():
    read = [(True, False), (True, True), (False, True), (False, False)]
    results = [
        result(f"p{n}", 0, True, verdict={"other_rules": {"strict-match": one, "last": two}})
        for n, (one, two) in enumerate([*read, (True, False)])
    ]
    found = dataset_metrics(results, ks=(1,))
    assert found["pass@k"]["1"]["value"] == 1.0
    assert "60.0% (" in shown("g", found)["g, strict-match"]
    assert "40.0% (" in shown("g", found)["g, last"]


def test_instructions_have_the_publishers_accuracy_over_all_of_them():
    counts = [(1, 1, 1), (3, 1, 2), (2, 0, 2), (4, 4, 4)]  # instructions, followed, loosely
    results = [
        result(f"p{n}", 0, one[0] == one[1], pass_fraction=one[1] / one[0], verdict=instructions(*one))
        for n, one in enumerate(counts)
    ]  # fmt: skip
    metrics = dataset_metrics(results, ks=(1,))
    found = metrics["instructions"]
    assert found["strict"]["value"] == pytest.approx(6 / 10)
    assert found["loose"]["value"] == pytest.approx(9 / 10)
    assert metrics["pass_ratio"]["value"] == pytest.approx((1 + 1 / 3 + 0 + 1) / 4)
    assert found["strict_mean"]["value"] == pytest.approx((6 / 10 + 2 / 4) / 2)
    lines = shown("rules", metrics)
    assert "60.0% (" in lines["rules, each instruction"]
    assert "90.0% (" in lines["rules, each instruction loosely"]
    assert "55.0% (" in lines["rules, mean of prompts and instructions"]
    assert "instructions" not in dataset_metrics([result("p", 0, True)], ks=(1,))


def test_the_interval_of_instructions_counts_problems():
    def metrics(n_each):
        kept = [(n % 2 == 0, n_each * (n % 2 == 0)) for n in range(100)]
        results = [
            result(f"p{n}", 0, passed, verdict=instructions(n_each, followed, followed))
            for n, (passed, followed) in enumerate(kept)
        ]
        return dataset_metrics(results, ks=(1,))

    assert "instructions" not in metrics(1)  # the same as over problems
    assert metrics(5)["instructions"]["strict"] == pytest.approx(metrics(2)["pass@k"]["1"])


def test_a_benchmark_with_further_tests_has_the_score_of_its_own_beside():
    verdicts = [(True, True), (False, True), (False, False), (False, True)]
    results = [
        result(f"p{n}", 0, passed, verdict={"base_passed": base})
        for n, (passed, base) in enumerate(verdicts)
    ]
    found = dataset_metrics(results, ks=(1,))
    assert (found["pass@k"]["1"]["value"], found["base"]["1"]["value"]) == (0.25, 0.75)
    (line,) = (line for name, line in shown("plus", found).items() if "own tests" in name)
    assert "75.0%" in line
    assert "base" not in dataset_metrics([result("p", 0, True)], ks=(1,))


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
    results = [
        synthetic_evaluations.result("lcb", name, 0, passed) for name, passed in graded.items()
    ]
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
    assert (
        part_metrics(
            [synthetic_evaluations.result("lcb", one.id, 0, True) for one in many], many, (1,)
        )
        == {}
    )
