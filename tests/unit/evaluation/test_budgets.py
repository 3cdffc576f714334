"""`eval budget`: repaired samples against as many independent ones as the same tokens buy."""

import pytest

from coding_model_project import cli
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.comparison.budgets import at_budgets
from coding_model_project.evaluation.results import read_evaluation
from tests.synthetic_evaluations import result, write_evaluation, write_results

N_PROBLEMS = 20


def write(folder, samples):
    """An evaluation whose problems all have these samples: (passed, tokens, repairs)."""
    results = (
        result(
            "toy", f"toy/{problem}", number, passed, tokens=tokens, repairs=repairs,
            repair_s=0.1 * repairs, program=f"{problem}/{number}",
        )
        for problem in range(N_PROBLEMS)
        for number, (passed, tokens, repairs) in enumerate(samples)
    )  # fmt: skip
    return write_results(write_evaluation(folder, {"toy": {}}), results)


def test_both_are_held_against_each_other_at_the_same_cost(tmp_path, capsys):
    independent = write(tmp_path / "independent", [(True, 10, 0)] + [(False, 10, 0)] * 3)
    repaired = write(tmp_path / "repaired", [(True, 20, 1), (True, 20, 1)])
    points = at_budgets(read_evaluation(independent), read_evaluation(repaired))
    tokens = [point for point in points if point.kind == "tokens"]
    cheapest, last = tokens[0], tokens[-1]
    assert cheapest.budget == 10
    assert cheapest.first == pytest.approx(1 / 4, abs=0.05)  # one sample of four, in any order
    assert cheapest.second == 0.0  # a repair is not to be had for the price of one attempt
    twenty = next(point for point in tokens if point.budget >= 20)
    assert twenty.second == 1.0
    assert twenty.delta == pytest.approx(1.0 - twenty.first)
    assert twenty.low <= twenty.delta <= twenty.high
    assert twenty.p < 0.01
    assert last.budget == 40  # what every problem of both has spent in all
    assert cli.main(["eval", "budget", str(independent), str(repaired)]) == 0
    assert "40 tokens" in capsys.readouterr().out


def test_nothing_in_common_is_said(tmp_path):
    first = read_evaluation(write(tmp_path / "a", [(True, 1, 0)]))
    empty = read_evaluation(write(tmp_path / "b", []))
    with pytest.raises(ConfigError, match="no graded problem in common"):
        at_budgets(first, empty)
