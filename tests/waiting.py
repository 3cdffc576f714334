"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


def wait_for(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    """Wait until it holds; fail the test if that takes too long."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"it did not happen within {within_s:.0f} s")
        time.sleep(0.05)
