"""The bash agent: a model that works on Harbor tasks in `episodes.bash` episodes, one for each step.

It implements `agents.Agent`, so `trial.Trials` verifies its work in the same environment.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace

from coding_model_project.episodes.bash import (
    Calls,
    ContextOverflow,
    Ending,
    Episode,
    Limits,
    Model,
)
from coding_model_project.harbor.environment.base import Environment, ImageError
from coding_model_project.harbor.format.task import Step, Task


class BashAgent:
    """An agent that runs one episode of a model per step. See `agents.Agent`.

    Each trial needs its own; `episodes` holds those of its steps.
    """

    name = "bash"

    def __init__(self, model: Model, limits: Limits, calls: Calls = Calls.block) -> None:
        self._model, self._limits, self._calls = model, limits, calls
        self.episodes: list[Episode] = []

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`.

        Raises:
            ImageError: the task offers its agent more than a shell.
            EnvironmentFailed: the environment is lost.
            Exception: as `Model.reply`.
        """
        for key in ("mcp_servers", "skills_dir"):
            if getattr(task.config.environment, key):
                raise ImageError(
                    f"environment.{key} is not supported by the bash agent; use an agent that takes it "
                    "(coding.agent.command, --agent)"
                )
        episode = Episode(
            step.instruction,
            environment,
            self._limits,
            calls=self._calls,
            user=step.agent.user,
        )
        self.episodes.append(episode)
        try:
            while episode.ending is None:
                await self._turn(episode)
        except asyncio.CancelledError:  # the task's own time limit
            episode.end(Ending.time)
            raise

    async def _turn(self, episode: Episode) -> None:
        left_s = episode.seconds_left
        deadline = asyncio.timeout(None if math.isinf(left_s) else left_s)
        started = time.monotonic()
        try:
            async with deadline:
                reply = await self._model.reply(episode.messages, episode.tokens_left)
        except ContextOverflow:
            return episode.end(Ending.context)
        except TimeoutError:
            if not deadline.expired():
                raise
            return episode.end(Ending.time)
        return await episode.take(replace(reply, seconds=time.monotonic() - started))
