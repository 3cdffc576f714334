import itertools

import numpy as np
import pytest

from coding_model_project.evaluation.statistics.intervals import bootstrap_interval, paired_test


def test_the_interval_holds_the_mean_and_narrows_with_problems():
    rng = np.random.default_rng(1)
    few, many = rng.random(30), rng.random(3000)
    low, high = bootstrap_interval(few.tolist())
    narrow_low, narrow_high = bootstrap_interval(many.tolist(), n=2000)
    assert low < few.mean() < high
    assert narrow_high - narrow_low < (high - low) / 3


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.binomial(4, 0.3, 100) / 4, n=1000)
        covered += low <= 0.3 <= high
    assert 180 <= covered <= 199


def test_the_same_seed_gives_the_same_numbers():
    rates = [0.0, 0.5, 1.0, 0.25]
    assert bootstrap_interval(rates) == bootstrap_interval(rates)
    assert bootstrap_interval([0.5, 0.5]) == (0.5, 0.5)


def test_the_p_value_is_that_of_all_sign_flips():
    first, second = [0.9, 0.7, 0.8, 0.6, 0.5, 1.0], [0.4, 0.6, 0.5, 0.7, 0.1, 0.2]
    differences = np.subtract(first, second)
    flips = [abs(np.dot(s, differences)) for s in itertools.product((-1, 1), repeat=6)]
    exact = np.mean([flip >= abs(differences.sum()) - 1e-9 for flip in flips])
    test = paired_test(first, second, n=40_000)
    assert test.p_value == pytest.approx(exact, abs=0.01)
    assert test.delta == pytest.approx(differences.mean())
    assert test.low < test.delta < test.high
    assert test.n_problems == 6


def test_no_difference_is_no_evidence_and_a_large_one_is_never_certain():
    same = paired_test([0.5] * 20, [0.5] * 20)
    assert (same.delta, same.p_value) == (0.0, 1.0)
    clear = paired_test([1.0] * 60, [0.0] * 60)
    assert clear.p_value == pytest.approx(1 / 10_001)
    assert paired_test([0.0] * 60, [1.0] * 60).delta == -1.0


def test_false_alarms_come_as_often_as_they_should():
    rng = np.random.default_rng(3)
    alarms = 0
    for seed in range(200):
        first, second = rng.random(40), rng.random(40)
        alarms += paired_test(first.tolist(), second.tolist(), n=400, seed=seed).p_value <= 0.05
    assert 1 <= alarms <= 22


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [1.0, 0.0]), ([float("nan")], [1.0])]
)
def test_nonsense_raises(first, second):
    with pytest.raises(ValueError, match=r"problem|rates"):
        paired_test(first, second)
