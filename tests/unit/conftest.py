"""A sandbox that starts once for all tests of a module that only use it."""

from collections.abc import AsyncIterator

import pytest

from coding_model_project.sandbox.embedded import EmbeddedSandbox


@pytest.fixture(scope="module")
async def any_sandbox() -> AsyncIterator[EmbeddedSandbox]:
    """A sandbox of the strongest tier that works here."""
    async with EmbeddedSandbox(workers=2, min_tier="rlimit") as sandbox:
        yield sandbox
