"""Health checks of environments, by the rules of Docker's HEALTHCHECK."""

from __future__ import annotations

import asyncio
import time

from coding_model_project.errors import HarborError
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.format.task_config import Healthcheck


class HealthcheckError(HarborError):
    """An environment that did not become healthy."""


async def become_healthy(environment: Environment, check: Healthcheck) -> None:
    """Wait until the health check succeeds.

    Raises:
        HealthcheckError: it failed `retries` times in a row after the start period.
    """
    started = time.monotonic()
    failures = 0
    while True:
        starting = time.monotonic() - started < check.start_period_sec
        ended = await environment.run_command(check.command, timeout_s=check.timeout_sec)
        if ended.exit_code == 0:
            return
        failures += not starting
        if failures >= check.retries:
            raise HealthcheckError(
                f"the health check failed {failures} times in a row: {check.command}"
            )
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)
