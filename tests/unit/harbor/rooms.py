"""This machine's rooms, or a skip without them."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.factory import EmbeddedEnvironments


def run_in_environments(use):
    """Return the result of `await use(environments)`; skip if the machine lacks the tier."""

    async def body():
        async with AsyncExitStack() as stack:
            try:
                environments = await stack.enter_async_context(EmbeddedEnvironments())
            except EnvironmentFailed as error:
                pytest.skip(f"no tier namespaces: {error}")
            return await use(environments)

    return asyncio.run(body())
