"""Fixtures of the sandbox tests."""

import sys

import pytest

from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import EmbeddedSandbox, supervisor
from coding_model_project.sandbox.fusion import fleet


@pytest.fixture(scope="module", params=list(Tier))
def tier(request) -> Tier:
    if problem := supervisor.why_not(request.param, sys.executable):
        pytest.skip(f"tier {request.param} does not work here: {problem}")
    return request.param


@pytest.fixture(scope="module")
async def sandbox(tier):
    """A sandbox of each tier."""
    async with EmbeddedSandbox(workers=2, min_tier="rlimit", tier=tier) as sandbox:
        yield sandbox


@pytest.fixture
def impatient(monkeypatch):
    """Trying again soon; what a server asks for in Retry-After is waited for all the same."""
    monkeypatch.setattr(fleet, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(fleet, "_JITTER_S", 0.02)
