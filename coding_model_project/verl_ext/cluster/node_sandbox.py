"""The sandboxes of all nodes of a Ray cluster, as one fleet of `sandbox serve`.

A Ray actor on each node serves that node's sandbox. `NodeServers` keeps these actors alive and names
their addresses; the fleet client of `FusionSandbox` does all else. Judging itself stays in the driver.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from platform import python_version
from typing import Any, Literal, Self

import ray
from ray.exceptions import RayError

from coding_model_project import __version__
from coding_model_project.concurrency import each
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ClusterError, ConfigError, SandboxError
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.runs.shared_folder import source
from coding_model_project.sandbox.fusion import FusionSandbox
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.server import listening
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import Admission
from coding_model_project.server.running import Bounds
from coding_model_project.verl_ext.cluster.nodes import (
    Node,
    alive_nodes,
    answer_of,
    cause_of,
    pinned,
)

Join = Callable[[], AbstractContextManager[None]]
"""A function that joins the cluster (`session.joined`)."""

_LOOK_S, _PING_WITHIN_S = 5.0, 60.0
"""Interval and time-out of pings: Ray does not notice a server that hangs."""
_OPEN_WITHIN_S = 300.0
"""Time-out of a server's start, which may read all packages from a slow disk."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 60.0
"""Seconds between attempts to restart a server."""
_MOST_REQUESTS, _MOST_WAITING = 4096, 512
_UNBOUNDED = Bounds(run_s=float("inf"), memory_mb=1 << 30, output_kb=1 << 30)
"""Problems' own limits hold, as on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A node's server that has started."""

    url: str
    identity: str
    """`Sandbox.identity`."""
    judge: str
    """All that a verdict depends on: the sandbox, and the versions and source of this package."""
    at_once: int
    """Number of programs that it runs at once."""


class NodeServer:
    """The actor of a node: `sandbox serve`, with a token, on the node's address.

    Args:
        host: the node's address.
        cpus: CPUs that Ray counts on the node: most programs at once.
    """

    def __init__(self, config: SandboxConfig, host: str, cpus: int, token: str) -> None:
        at_once = max(1, min(config.workers or usable_cores(), cpus))
        self._config, self._host = replace(config, workers=at_once), host
        self._admission = Admission(at_once, _MOST_WAITING)
        self._settings = Settings(token=token, bounds=_UNBOUNDED, max_request_bytes=1 << 30)
        self._stack = AsyncExitStack()
        self._serving: asyncio.Task[None] | None = None
        self._served: Served | None = None

    async def serve(self) -> Served:
        """Start the sandbox and the server, unless they have started.

        Raises:
            SandboxError: one does not start, or the server has ended.
            ConfigError: the node lacks a path that the configuration names.
        """
        if self._serving is not None and self._serving.done():
            raise SandboxError("its server has ended")
        if self._served is not None:
            return self._served
        try:
            socket = self._stack.enter_context(listening.listen(self._host, 0))
            sandbox = await self._stack.enter_async_context(make_sandbox(self._config))
        except OSError as error:
            raise SandboxError(str(error)) from error
        started = asyncio.Event()
        app = create_app(sandbox, self._admission, self._settings)
        self._server = listening.Server(app, started.set, self._admission)
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[socket]))
        await started.wait()
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._served = Served(
            url=f"http://{host}:{socket.getsockname()[1]}",
            identity=sandbox.identity,
            judge=f"{sandbox.identity}, {__version__} ({source()}), Python {python_version()}",
            at_once=self._admission.places,
        )
        return self._served


@dataclass(slots=True, eq=False)
class _Place:
    """A node, and its server."""

    node: Node
    name: str
    actor: Any = None
    served: Served | None = None
    why: str = ""
    """Its last failure."""

    def end(self) -> None:
        """End the server's process and the programs that it runs."""
        self.served, actor, self.actor = None, self.actor, None
        if actor is not None:
            with suppress(RayError):
                ray.kill(actor)

    async def call(self, method: str, *given: Any, within_s: float | None = None) -> Any:
        """Call a method of the actor.

        Raises:
            SandboxError: it failed, is too slow, or its process or node is gone.
            ConfigError: as `NodeServer.serve`; names the node.
        """
        try:
            async with asyncio.timeout(within_s):
                return await answer_of(getattr(self.actor, method).remote(*given))
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        except SandboxError as error:
            self.why = str(error)
        except TimeoutError:
            self.why = f"its judge did not answer within {within_s:.0f} s"
        except RayError as error:
            self.why = f"its judge died: {cause_of(error)}"
        raise SandboxError(self.why)


class NodeServers:
    """The servers of all nodes, as a `fusion.members.Source`. An async context manager.

    A server that ends is started again, and so is one on a node that joins later.

    Args:
        token: what the servers require.
        say: a function that prints a line about a node's change of state.
    """

    changes = True

    def __str__(self) -> str:
        return "the nodes of the Ray cluster"

    def __init__(self, config: SandboxConfig, token: str, say: Callable[[str], None]) -> None:
        self._config, self._token, self._say = config, token, say
        self.places: dict[str, _Place] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._agreed: Served | None = None

    @property
    def served(self) -> list[Served]:
        """The servers that serve now."""
        return [one.served for one in self.places.values() if one.served is not None]

    @property
    def agreed(self) -> Served:
        """A server like all others."""
        assert self._agreed is not None, "the context is entered first"
        return self._agreed

    async def __aenter__(self) -> Self:
        """Start a server on every node, and make sure that all judge alike.

        Raises:
            ClusterError: no node has a CPU, or nodes would judge differently.
            SandboxError: no node judges.
            ConfigError: a node lacks a path that the configuration names.
        """
        places = self._added()
        if not places:
            raise ClusterError("the Ray cluster has no node with a CPU; see `ray status`")
        try:
            await each(places, self._first_look)
            judging = [one for one in places if one.served is not None]
            if not judging:
                raise SandboxError(f"no node judges: {places[0].name}: {places[0].why}")
            self._agreed = judging[0].served
            for one in judging:
                if unlike := self._unlike(one.served):
                    raise ClusterError(
                        f"nodes would judge differently: {one.name} {unlike}, as {judging[0].name} has; "
                        "install the same version on both, or take one out of the cluster (`ray stop`)"
                    )
        except BaseException:
            await self.__aexit__()
            raise
        self._keep(places)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._keeping.values():
            task.cancel()
        await asyncio.gather(*self._keeping.values(), return_exceptions=True)
        for one in self.places.values():
            one.end()

    async def urls(self) -> tuple[str, ...]:
        """See `fusion.members.Source`."""
        try:
            self._keep(self._added())
        except (RayError, RuntimeError, ConnectionError) as error:
            raise OSError(f"Ray's head does not answer ({cause_of(error)})") from error
        if not (served := self.served):
            whys = (f"{one.name}: {one.why}" for one in self.places.values() if one.why)
            raise OSError(f"no node judges ({'; '.join(whys)})")
        return tuple(one.url for one in served)

    def _added(self) -> list[_Place]:
        """Add nodes that have joined, forget those that Ray has lost, and return the new ones."""
        nodes = {node.id: node for node in alive_nodes() if int(node.cpus)}
        for lost in self.places.keys() - nodes.keys():
            self._say(f"{self.places.pop(lost).name} has left the cluster")
            self._keeping.pop(lost).cancel()
        new = [node for node in nodes.values() if node.id not in self.places]
        hosts = [node.host for node in nodes.values()]
        for node in new:
            name = node.host if hosts.count(node.host) == 1 else f"{node.host}:{node.port}"
            self.places[node.id] = _Place(node, name)
        return [self.places[node.id] for node in new]

    def _keep(self, places: Sequence[_Place]) -> None:
        for one in places:
            self._keeping[one.node.id] = asyncio.ensure_future(self._keep_serving(one))

    async def _keep_serving(self, one: _Place) -> None:
        """Start a node's server again whenever it ends, and say so."""
        wait_s, quarantined = _FIRST_WAIT_S, False
        while True:
            is_new = one.served is None
            try:
                await self._look(one)
            except (SandboxError, ConfigError) as error:
                one.end()
                if quarantined:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
                else:
                    self._say(f"{one.name} is quarantined, its work goes elsewhere: {error}")
                    quarantined = True
            else:
                if is_new:
                    self._say(f"{one.name} judges {'again' if quarantined else 'too'}")
                wait_s, quarantined = _FIRST_WAIT_S, False
                await asyncio.sleep(_LOOK_S)

    async def _first_look(self, one: _Place) -> None:
        for _ in range(2):  # a busy node may lose a process that starts
            with suppress(SandboxError):
                return await self._look(one)
            one.end()
        return None

    async def _look(self, one: _Place) -> None:
        """Start a node's server, or make sure that it serves.

        Raises:
            SandboxError: it does not, or the node would judge differently.
            ConfigError: as `NodeServer.serve`.
        """
        within_s = _PING_WITHIN_S
        if one.actor is None:
            options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 2 * _MOST_REQUESTS}
            actor: Any = ray.remote(NodeServer).options(**pinned(one.node.id), **options)
            given = self._config, one.node.address, int(one.node.cpus), self._token
            one.actor, within_s = actor.remote(*given), _OPEN_WITHIN_S
        served: Served = await one.call("serve", within_s=within_s)
        if self._agreed is not None and (unlike := self._unlike(served)):
            one.why = f"the node would judge differently: it {unlike}"
            raise SandboxError(one.why)
        one.served = served

    def _unlike(self, served: Served | None) -> str | None:
        """Return how a server differs from the others; None if it does not."""
        agreed = self.agreed.judge
        if served is None or served.judge == agreed:
            return None
        return f"has {served.judge}, not {agreed}"


class NodesSandbox(FusionSandbox):
    """The sandboxes of all nodes of a Ray cluster as one.

    Args:
        config: each node's sandbox.
        join: joins the cluster when the sandbox starts.
        say: a function that prints a line about nodes.

    Raises:
        ConfigError: the configuration names other servers too.
    """

    shares_calls: Literal[True] = True
    queues: Literal[True] = True

    def __init__(self, config: SandboxConfig, *, join: Join, say: Callable[[str], None]) -> None:
        if config.name == "embedded" and config.urls:
            raise ConfigError(
                "coding.sandbox.urls: nodes of a cluster run all languages themselves; remove the key, "
                "or set coding.sandbox.name=fusion to judge on these servers without the cluster"
            )
        token = secrets.token_hex(32)
        self._servers, self._join, self._say = NodeServers(config, token, say), join, say
        super().__init__(
            [self._servers],
            max_concurrency=_MOST_REQUESTS,
            timeout_s=config.timeout_s,
            retry_s=config.retry_s,
            refresh_s=config.refresh_s,
            ping_s=_PING_WITHIN_S,
            token=token,
        )
        self._stack = AsyncExitStack()

    @property
    def identity(self) -> str:
        """The identity of each node's sandbox, such as "embedded/seccomp/cpython-3.11"."""
        return self._servers.agreed.identity

    async def __aenter__(self) -> Self:
        """Join the cluster, and start the nodes' servers; raises as `NodeServers` and `Join` do."""
        try:
            self._stack.enter_context(self._join())
            await self._stack.enter_async_context(self._servers)
            served = self._servers.served
            places = sum(one.at_once for one in served)
            self._say(
                f"judging on {len(served)} nodes, {places} programs at once ({self.identity})"
            )
            return await super().__aenter__()
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__(*_)
        await self._stack.aclose()
