"""Rows are drawn by the expected value of their groups, and a resumed run continues the draws."""

import pytest

from coding_model_project.data.training.difficulty import DrawByWorth
from coding_model_project.errors import ConfigError

IDS = [f"mine/{number}" for number in range(20)]


def drawn(draws: DrawByWorth, n: int = 2000) -> dict[str, int]:
    rows = [draws.draw() for _ in range(n)]
    return {name: rows.count(number) for number, name in enumerate(IDS)}


def test_problems_that_disagree_are_drawn_more_often_and_none_is_given_up():
    draws = DrawByWorth(IDS, seed=1, apart=4)
    for name in IDS[:10]:
        draws.seen(name, 8, 8)
    for name in IDS[10:]:
        draws.seen(name, 4, 8)
    times = drawn(draws)
    solved, open_ = sum(times[n] for n in IDS[:10]), sum(times[n] for n in IDS[10:])
    assert open_ > 2 * solved
    assert min(times.values()) > 0


def test_what_was_never_tried_is_worth_a_try():
    draws = DrawByWorth(IDS, seed=1, apart=4)
    worth = draws.worth()
    assert worth == pytest.approx([1 / 6] * len(IDS))
    draws.seen(IDS[0], 0, 8)
    assert draws.worth()[0] < worth[0]


def test_a_row_waits_until_so_many_others_were_drawn():
    draws = DrawByWorth(IDS, seed=1, apart=8)
    rows = [draws.draw() for _ in range(300)]
    assert all(row not in rows[max(0, at - 8) : at] for at, row in enumerate(rows))


def test_measured_rates_are_where_it_starts():
    rates = {IDS[0]: (64.0, 64.0), IDS[1]: (32.0, 64.0), "others/1": (1.0, 2.0)}
    worth = DrawByWorth(IDS, seed=1, apart=4, rates=rates).worth()
    assert worth[0] < worth[2] < worth[1]


def test_rows_of_one_problem_share_what_is_known():
    draws = DrawByWorth([IDS[0], IDS[0], IDS[1]], seed=1, apart=1)
    draws.seen(IDS[0], 8, 8)
    assert len(draws.worth()) == 2


def test_a_resumed_run_draws_what_it_would_have_drawn():
    draws = DrawByWorth(IDS, seed=1, apart=4)
    for _ in range(50):
        draws.draw()
    draws.seen(IDS[3], 1, 8)
    resumed = DrawByWorth(IDS, seed=2, apart=4)
    resumed.load_state_dict(draws.state_dict())
    assert [resumed.draw() for _ in range(50)] == [draws.draw() for _ in range(50)]


def test_a_state_of_other_rows_is_refused():
    with pytest.raises(ConfigError, match=r"data\.train_files: .* has other problems"):
        DrawByWorth(IDS, seed=1, apart=4).load_state_dict(
            DrawByWorth(IDS[1:], seed=1, apart=4).state_dict()
        )
