"""Waiting for what other processes do."""

import time
from collections.abc import Callable

import pytest


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds; fail the test if that takes too long."""
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen within 20 s")
