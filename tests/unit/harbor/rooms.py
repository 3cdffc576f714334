"""This machine's rooms, or a skip without them."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments


class _Shared:
    """A keeper of rooms, and the loop in which it is used."""

    def __init__(self):
        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        started = self.stack.enter_async_context(EmbeddedEnvironments())
        self.environments = self.runner.run(started)

    def close(self):
        with self.runner:
            self.runner.run(self.stack.aclose())


_shared: list[_Shared] = []


def run_in_environments(use):
    """Return the result of `await use(environments)`; skip if the machine lacks the tier.

    The tests of a module share the keeper of rooms; the module's last test ends it (`end_rooms`).
    """
    need_rooms()
    return _shared[0].runner.run(use(_shared[0].environments))


def need_rooms():
    """Skip the test if this machine has no rooms."""
    if not _shared:
        try:
            _shared.append(_Shared())
        except EnvironmentFailed as error:
            pytest.skip(f"no tier namespaces: {error}")


def end_rooms():
    """End the keeper with all its rooms."""
    while _shared:
        _shared.pop().close()
