"""Agents that work on a Harbor task through the gateway: a command on the host or in the room.

The verifier judges an agent's work however the agent ends: a crash, a hang or a reached limit is an
`AgentEnding`. An infrastructure failure raises instead.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from coding_model_project.errors import ConfigError, HarborError
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.environment.calls import calling
from coding_model_project.harbor.environment.tree import Tree, of_bytes
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.gateway.requests import MODEL
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import AgentSession
from coding_model_project.harbor.harbor_config import AgentConfig, AgentEnding, AgentPlace
from coding_model_project.harbor.rooms.rooms import Room
from coding_model_project.isolation.processes import TOKEN

ROOM_PORT = 8321
"""The gateway's port on the loopback of a room."""

_IN_ROOM = "/tmp/agent"
_TASK_FILE, _CODEX_HOME, _CODEX_FILE = "TASK.md", "codex", "codex/config.toml"
_TAIL_CHARS = 1000


Exit = tuple[int, str]
"""The exit code of an agent's process, 128 plus the signal's number if a signal ended it, and the end of
its output."""


@dataclass(slots=True, kw_only=True)
class Work:
    """An agent's work on a step."""

    session: AgentSession
    ending: AgentEnding | None = None
    said: str = ""
    """The end of its output."""
    exit_code: int | None = None
    seconds: float = 0.0


Begin = Callable[[Environment, str | int | None], AgentSession]
"""Makes a sample's session from the environment and the user of its commands."""


@dataclass(slots=True, kw_only=True)
class GatewayAgent:
    """The agent that `coding.agent` configures. See `agents.Agent`. One instance per trial."""

    config: AgentConfig
    gateway: Gateway
    begin: Begin
    works: list[Work] = field(default_factory=list)
    """One per step that began."""
    name = "gateway"

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`.

        Raises:
            CodingModelError: the model's engine or the environment failed.
            asyncio.CancelledError: the task's own time limit passed; the ending is recorded.
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
            work.ending = work.session.refused

    async def _work(self, work: Work, task: Task, step: Step, environment: Environment) -> None:
        """Run the agent until it ends, has no replies or time left, or the infrastructure fails."""
        in_room = self.config.place is AgentPlace.room
        kind = self._in_room if in_room else self._on_host
        running = asyncio.ensure_future(kind(work, task, step, environment))
        over = asyncio.ensure_future(work.session.over.wait())
        try:
            total_s, first = self.config.total_s, asyncio.FIRST_COMPLETED
            await asyncio.wait((running, over), timeout=total_s, return_when=first)
            late = not running.done() and not over.done()
        finally:
            over.cancel()
            running.cancel()
            await asyncio.gather(running, over, return_exceptions=True)
        if late:
            work.ending = AgentEnding.time
            return
        if running.cancelled():
            return  # `run` raises the session's failure, or notes that the replies are used up
        work.exit_code, output = running.result()
        work.said = output[-_TAIL_CHARS:]
        work.ending = AgentEnding.crashed if work.exit_code else AgentEnding.done

    # ── the two places ────────────────────────────────────────────────────────────────────────────

    async def _on_host(self, work: Work, task: Task, step: Step, _: Environment) -> Exit:
        config = self.config
        assert config.command is not None
        try:
            with self.gateway.open(work.session) as url, TemporaryDirectory(prefix="agent-") as own:
                Path(own, _TASK_FILE).write_text(step.instruction, "utf-8", "replace")
                Path(own, _CODEX_HOME).mkdir()
                Path(own, _CODEX_FILE).write_text(_codex(url, work.session))
                env = {**_variables(url, work.session, own, task), "TMPDIR": own, **config.env}
                cwd = Path(config.folder) if config.folder else Path(own)
                return await _run_here(config.command, cwd=cwd, env=env)
        except OSError as error:
            raise HarborError(f"the agent's command cannot be started: {error}") from error

    async def _in_room(self, work: Work, task: Task, step: Step, environment: Environment) -> Exit:
        config = self.config
        assert config.command is not None
        if not isinstance(environment, Room):
            raise ConfigError(
                "coding.agent.place=room: expected a room of this machine; set "
                "coding.harbor.environment=rooms or coding.agent.place=host"
            )
        url = f"http://127.0.0.1:{ROOM_PORT}/v1"
        variables = _variables(url, work.session, _IN_ROOM, task)
        asked = of_bytes(_TASK_FILE, step.instruction.encode("utf-8", "replace"))
        home = Tree(((_CODEX_HOME, "d", 0o777, ""),))  # the agent's user keeps its own files there
        codex = of_bytes(_CODEX_FILE, _codex(url, work.session).encode())
        try:
            await environment.write_tree(_IN_ROOM, asked + home + codex)
            listening = await environment.listen(ROOM_PORT)
        except OSError as error:  # the task's fault: the agent has not started
            needs = f"the gateway needs port {ROOM_PORT} and {_IN_ROOM} in the room"
            raise HarborError(f"{needs}: {error}") from error
        async with self.gateway.on(listening, work.session):
            ended = await environment.run_command(
                f"exec 2>&1\n{config.command}",
                env={**variables, "IS_SANDBOX": "1", **config.env},
                user=step.agent.user,
                max_output=2 * _TAIL_CHARS,
            )
        killed = f"killed: {ended.killed}\n" if ended.killed else ""
        return ended.exit_code or int(bool(killed)), killed + ended.stdout.strip()


def _variables(url: str, session: AgentSession, folder: str, task: Task) -> dict[str, str]:
    offered, variables = task.config.environment, dict[str, str]()
    if offered.mcp_servers:
        variables["MCP_SERVERS"] = json.dumps(offered.mcp_servers)
    if offered.skills_dir:
        variables["SKILLS_DIR"] = offered.skills_dir
    return {
        **variables,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_BASE": url,  # litellm reads this one
        "OPENAI_API_KEY": session.key,
        "OPENAI_MODEL": MODEL,
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": session.key,
        "ANTHROPIC_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CODEX_HOME": f"{folder}/{_CODEX_HOME}",
        "CONTEXT_TOKENS": str(session.limits.context_tokens),
        "TASK_FILE": f"{folder}/{_TASK_FILE}",
    }


def _codex(url: str, session: AgentSession) -> str:
    """Return the configuration of codex, which reads no address from its environment."""
    key, wire = 'env_key = "OPENAI_API_KEY"', 'wire_api = "responses"'
    provider = f'{{name = "gateway", base_url = "{url}", {key}, {wire}}}'
    model = f'model = "{MODEL}"\nmodel_context_window = {session.limits.context_tokens}\n'
    return f'{model}model_provider = "gateway"\nmodel_providers.gateway = {provider}\n'


_INHERITED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", TOKEN),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
"""Variables that an agent inherits from this process: none of the training's credentials."""

_GRACE_S = 2.0


async def _run_here(command: str, *, cwd: Path, env: Mapping[str, str]) -> Exit:
    """Run a command until it and its descendants end. If this is cancelled, they are ended.

    Args:
        env: variables in addition to the few inherited ones.

    Raises:
        OSError: it cannot be started.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    async with calling(
        ["/bin/bash", "-c", f"exec 2>&1\n{command}"],
        cwd=cwd,
        env={**kept, **env},
        max_output=8 * _TAIL_CHARS,
        grace_s=_GRACE_S,
    ) as call:
        code = await asyncio.shield(call.ended)
    output = call.stdout.take()[0].decode("utf-8", "replace").strip()
    return code if code >= 0 else 128 - code, output
