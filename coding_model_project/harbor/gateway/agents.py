"""Agents that talk to the gateway, on a Harbor task: a command on the host or in the room, or an object.

However an agent ends, what it did by then is verified: a crash, a hang or a used-up limit is an
`AgentEnding`. What of the infrastructure fails is none and raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast

from coding_model_project.errors import CodingModelError, ConfigError, HarborError
from coding_model_project.harbor.agent_config import AgentConfig, AgentEnding, AgentPlace
from coding_model_project.harbor.agents import (
    Agent,
    AgentTimeoutError,
    NonZeroAgentExitCodeError,
)
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.gateway.app import MODEL
from coding_model_project.harbor.gateway.host import Exit, HostProcess
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import Session
from coding_model_project.harbor.rooms.rooms import Room

ROOM_PORT = 8321
"""The gateway's port on the loopback of a room."""

_TASK_FILE = "TASK.md"
_IN_ROOM = f"/tmp/agent/{_TASK_FILE}"
_SAID = 1000
_OF_THE_AGENT = (AgentTimeoutError, NonZeroAgentExitCodeError)


class Factory(Protocol):
    """Makes an agent in Python."""

    def __call__(self, *, base_url: str, api_key: str) -> Agent:
        """Make one for a sample, which talks to that address and shows that key."""
        ...


@dataclass(slots=True, kw_only=True)
class Work:
    """The work of an agent on a step."""

    session: Session
    ending: AgentEnding | None = None
    said: str = ""
    """The end of what it printed, or its exception."""
    exit_code: int | None = None
    seconds: float = 0.0


Begin = Callable[[Environment, str | int | None], Session]
"""Makes the session of a sample, given where its commands run, and who runs them."""


@dataclass(slots=True, kw_only=True)
class GatewayAgent:
    """An agent of `coding.agent` on a task. See `agents.Agent`. One for each trial."""

    config: AgentConfig
    gateway: Gateway
    begin: Begin
    works: list[Work] = field(default_factory=list)
    """One for each step that was begun."""
    name: str = "gateway"

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`.

        Raises:
            CodingModelError: the model's engine or the environment is gone.
            asyncio.CancelledError: the task's own time is over; the ending is noted.
        """
        work = Work(session=self.begin(environment, step.agent.user))
        self.works.append(work)
        started = asyncio.get_running_loop().time()
        try:
            await self._work(work, task, step, environment)
        except asyncio.CancelledError:
            work.ending = AgentEnding.time
            raise
        finally:
            await work.session.close()
            work.seconds = asyncio.get_running_loop().time() - started
        if work.session.failure is not None:
            raise work.session.failure
        if work.session.refused is not None and work.ending is not AgentEnding.time:
            work.ending = AgentEnding(work.session.refused)

    async def _work(self, work: Work, task: Task, step: Step, environment: Environment) -> None:
        """Let the agent work until it ends, its time is over, or the infrastructure fails."""
        running = asyncio.ensure_future(self._started(work, task, step, environment))
        failed = asyncio.ensure_future(work.session.failed.wait())
        try:
            await asyncio.wait(
                (running, failed),
                timeout=self.config.total_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            over = not running.done() and not failed.done()
        finally:
            failed.cancel()
            running.cancel()
            await asyncio.gather(running, failed, return_exceptions=True)
        if over:
            work.ending = AgentEnding.time
            return
        if running.cancelled():
            return  # the session says what failed
        error = running.exception()
        if error is None:
            code = running.result().code
            work.exit_code, work.said = code, running.result().said[-_SAID:]
            work.ending = AgentEnding.crashed if code else AgentEnding.done
        elif not isinstance(error, _OF_THE_AGENT) and not _is_a_crash(error):
            raise error
        else:
            work.said = f"{type(error).__name__}: {error}"[-_SAID:]
            late = isinstance(error, AgentTimeoutError)
            work.ending = AgentEnding.time if late else AgentEnding.crashed

    async def _started(self, work: Work, task: Task, step: Step, environment: Environment) -> Exit:
        if self.config.factory is not None:
            return await self._object(work, task, step, environment)
        if self.config.place is AgentPlace.room:
            return await self._in_room(work, step, environment)
        return await self._on_host(work, step)

    # ── the three kinds ───────────────────────────────────────────────────────────────────────────

    async def _object(self, work: Work, task: Task, step: Step, environment: Environment) -> Exit:
        assert self.config.factory is not None
        lent = _Lent(environment)
        with self.gateway.open(work.session) as url:
            make: Factory = factory_of(self.config.factory)
            agent = make(base_url=url, api_key=work.session.key)
            working = asyncio.ensure_future(agent.run(task, step, cast(Environment, lent)))
            try:
                await asyncio.shield(working)
            finally:  # it may ignore that it is cancelled
                lent.take_back()
                working.cancel()
        return Exit(code=0, said="")

    async def _on_host(self, work: Work, step: Step) -> Exit:
        config = self.config
        assert config.command is not None
        with self.gateway.open(work.session) as url, TemporaryDirectory(prefix="agent-") as own:
            file = Path(own, _TASK_FILE)
            file.write_text(step.instruction, "utf-8", "replace")
            env = {**_variables(url, work.session, str(file)), "TMPDIR": own, **config.env}
            cwd = Path(config.folder) if config.folder else Path(own)
            process = await HostProcess.start(config.command, cwd=cwd, env=env)
            try:
                return await process.wait()
            finally:
                await process.end()

    async def _in_room(self, work: Work, step: Step, environment: Environment) -> Exit:
        config = self.config
        assert config.command is not None
        room = room_of(environment)
        try:
            await room.write_file(_IN_ROOM, step.instruction.encode("utf-8", "replace"))
            listening = await room.listen(ROOM_PORT)
        except OSError as error:  # by the task, since the agent has not begun
            raise HarborError(
                f"the room has no place for the gateway, port {ROOM_PORT} and {_IN_ROOM}: {error}"
            ) from error
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.gateway.on(listening, work.session))
            url = f"http://127.0.0.1:{ROOM_PORT}/v1"
            ended = await room.run_command(
                f"exec 2>&1\n{config.command}",
                env={**_variables(url, work.session, _IN_ROOM), **config.env},
                user=step.agent.user,
                max_output=2 * _SAID,
            )
        killed = f"killed: {ended.killed}\n" if ended.killed else ""
        return Exit(code=ended.exit_code or int(bool(killed)), said=killed + ended.stdout.strip())


class _Lent:
    """An environment that an agent in Python has until its time is over, even if it goes on."""

    def __init__(self, environment: Environment) -> None:
        self._environment: Environment | None = environment

    def take_back(self) -> None:
        """Let no further call through."""
        self._environment = None

    def __getattr__(self, name: str) -> Any:
        if self._environment is None:
            raise HarborError("the agent's time is over: its environment is the verifier's")
        return getattr(self._environment, name)


def _is_a_crash(error: BaseException) -> bool:
    """Return true for an exception of the agent's own: not ours, and no end of this process."""
    return isinstance(error, Exception) and not isinstance(error, CodingModelError)


def _variables(url: str, session: Session, task_file: str) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_BASE": url,  # what litellm reads
        "OPENAI_API_KEY": session.key,
        "OPENAI_MODEL": MODEL,
        "TASK_FILE": task_file,
    }


def room_of(environment: Environment) -> Room:
    """Return the environment as a room.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(environment, Room):
        return environment
    raise ConfigError(
        "coding.agent.place=room: an agent works in rooms of this machine only; set "
        "coding.harbor.environment=rooms or coding.agent.place=host"
    )


def factory_of(name: str) -> Any:
    """Return what makes agents.

    Raises:
        ConfigError: nothing has that name, or what has it cannot be called.
    """
    try:
        factory = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"coding.agent.factory={name}: {error}; name package.module:Factory"
        ) from error
    if not callable(factory):
        raise ConfigError(f"coding.agent.factory={name}: cannot be called")
    return factory
