"""Environments of this machine, or the reason why there are none."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed
from coding_model_project.harbor.environment.factory import EmbeddedEnvironments


def run_in_environments(use, rootfs=None):
    """The result of `await use(environments)`; skips where the tier is not reached."""

    async def body():
        async with AsyncExitStack() as stack:
            try:
                environments = await stack.enter_async_context(EmbeddedEnvironments(rootfs))
            except EnvironmentFailed as error:
                pytest.skip(f"no tier namespaces: {error}")
            return await use(environments)

    return asyncio.run(body())
