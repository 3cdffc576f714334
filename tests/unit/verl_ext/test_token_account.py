"""The account of an asynchronous run's tokens."""

from __future__ import annotations

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.verl_ext.trainers.token_account import TokenAccount


def test_what_is_not_accounted_for_is_in_flight() -> None:
    account = TokenAccount(restored=10, trained=50, evicted=7)
    metrics = account.metrics(generated=100, queued=20, validated=5, left_out=3)
    assert metrics["rollout/in_flight_tokens"] == 100 + 10 - 50 - 7 - 5 - 3
    assert metrics["rollout/queued_tokens"] == 20


def test_a_token_that_is_counted_twice_ends_the_run() -> None:
    with pytest.raises(TrainingError, match=r"90 tokens were trained on.* and 20 are queued"):
        TokenAccount(trained=90).metrics(generated=100, queued=20, validated=0, left_out=0)


def test_without_the_servers_counters_there_is_no_sum() -> None:
    metrics = TokenAccount(trained=9).metrics(generated=None, queued=1, validated=0, left_out=0)
    assert metrics["rollout/trained_tokens_total"] == 9
    assert "rollout/in_flight_tokens" not in metrics
