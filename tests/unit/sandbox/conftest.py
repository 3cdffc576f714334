"""Fixtures of the sandbox tests."""

import pytest

from coding_model_project.sandbox.fusion import fleet


@pytest.fixture
def impatient(monkeypatch):
    """Trying again soon; what a server asks for in Retry-After is waited for all the same."""
    monkeypatch.setattr(fleet, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(fleet, "_JITTER_S", 0.02)
