"""Token counts of rollout servers that fail or are down."""

from __future__ import annotations

import socket

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.verl_ext.trainers.tokens import TokenAccount, generated_tokens
from tests.answering import answering


def test_a_server_that_does_not_answer_is_named_in_one_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TrainingError) as caught:
            generated_tokens([address])
    assert f"rollout server {address} does not answer" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def server():
    """A server whose next answers are given statuses; then it has counted 5 tokens."""
    statuses = []

    def answer(*_):
        counted = b'vllm:generation_tokens_total{engine="0"} 5.0\n'
        return statuses.pop(0) if statuses else 200, {}, counted

    with answering(answer) as url:
        yield url.removeprefix("http://"), statuses


def test_a_server_that_fails_once_is_asked_again(server):
    address, statuses = server
    assert generated_tokens([address, address]) == 10
    statuses[:] = [503]
    assert generated_tokens([address, address]) == 10
    statuses[:] = [503] * 20
    with pytest.raises(TrainingError, match=r"does not answer \(.*503"):
        generated_tokens([address])


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
