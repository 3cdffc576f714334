"""Each outage is announced once, and repeated short ones ever more rarely."""

import time

import pytest
import stamina

from coding_model_project.errors import ConfigError
from coding_model_project.http import Service, announced, reason, secret_of


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_an_outage_has_two_lines_however_often_it_is_tried(clock):
    said = []
    service = Service("server", "http://x", said.append)
    for _ in range(14):
        service.failed(OSError("http://x: gone"), "next attempt in 1.0 s, retrying until 14:05:30")
        clock.now += 5
    service.worked()
    service.worked()
    assert "http://x does not answer (gone); next attempt in 1.0 s" in said[0]
    assert said[1:] == ["the server http://x is back after 70 s"]


def test_moments_are_announced_ever_more_rarely_and_a_long_outage_always(clock):
    said = []
    service = Service("server", "http://x", said.append)
    for _ in range(600):  # ten minutes at a rate limit
        service.failed(OSError("busy"), "soon")
        service.worked()
        clock.now += 1
    assert len(said) == 2 * 5  # after 0, 30, 90, 210 and 450 s
    service.failed(OSError("gone"), "later")
    clock.now += 11
    service.failed(OSError("gone"), "later")
    assert said[10:] == ["the server http://x does not answer (gone); later"]


def failing_once():
    errors = [OSError("gone")]

    def call():
        if errors:
            raise errors.pop()

    return stamina.retry(on=OSError)(call)


def test_retries_of_others_are_logged_as_before(caplog, capsys):
    with stamina.set_testing(True, attempts=2):
        with announced(Service("store", "s3://x"), attempts=6):
            failing_once()()
        assert "the store s3://x does not answer (gone)" in capsys.readouterr().err
        assert not caplog.records
        failing_once()()
    assert caplog.messages == ["stamina.retry_scheduled"]
    assert not capsys.readouterr().err


def test_a_reason_is_never_empty():
    assert reason(TimeoutError()) == "TimeoutError"
    try:
        try:
            raise ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)")
        except OSError as cause:
            raise RuntimeError("All connection attempts failed") from cause
    except RuntimeError as error:
        assert reason(error) == "connection refused"


def test_a_secret_without_its_files_newline(monkeypatch):
    monkeypatch.setenv("A_TOKEN", "s3cret\n")
    assert secret_of("A_TOKEN") == "s3cret"
    assert secret_of("A_TOKEN", " ") is None
    with pytest.raises(ConfigError, match="A_TOKEN") as error:
        secret_of("A_TOKEN", "s3\ncret")
    assert "cret" not in str(error.value)
