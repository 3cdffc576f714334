"""The order of samples by length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.verl


def order_within(lengths: list[int], within: int) -> list[int]:
    from coding_model_project.verl_ext.trainers import batches

    return batches.order_within(lengths, within)


def test_each_sample_stays_in_its_mini_batch() -> None:
    assert order_within([5, 1, 3, 9, 2, 7], within=3) == [1, 2, 0, 4, 5, 3]


@given(lengths=st.lists(st.integers(1, 99)), within=st.integers(1, 40))
def test_nothing_is_lost_and_neighbours_are_of_like_length(lengths: list[int], within: int) -> None:
    order = order_within(lengths, within)
    assert sorted(order) == list(range(len(lengths)))
    assert [place // within for place in order] == [
        place // within for place in range(len(lengths))
    ]
    for start in range(0, len(lengths), within):
        run = [lengths[place] for place in order[start : start + within]]
        assert run == sorted(run)
