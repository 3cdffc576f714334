"""Servers that come and go while programs are judged: by a file, by a name, by what they say."""

import asyncio
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from coding_model_project.errors import SandboxError
from coding_model_project.sandbox.fusion import FusionSandbox, members, wire
from coding_model_project.sandbox.fusion.endpoint import Endpoint
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import Admission
from tests.unit.sandbox.fusion_servers import CORES, Hosts, Server, fake, fusion, outputs

pytestmark = pytest.mark.usefixtures("impatient")

HOSTS = ("one", "two", "three")


class World:
    """Servers by host, and a file that names some of them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "judges.txt"
        self.transport = self.server = Server(*HOSTS)
        self.name("one")

    def name(self, *hosts: str) -> None:
        self.file.write_text("# judges\n\n" + "".join(f"http://{h}:8080/ # {h}\n" for h in hosts))

    def fusion(self, retry_s: float = 5.0, max_concurrency: int = 32) -> FusionSandbox:
        return FusionSandbox(
            [f"file:{self.file}"],
            transport=self.transport,
            retry_s=retry_s,
            refresh_s=0.05,
            max_concurrency=max_concurrency,
        )

    async def asked(self, sandbox: FusionSandbox) -> set[str]:
        """The hosts that programs go to now."""
        self.server.asked.clear()
        for n in range(12):
            await outputs(sandbox, str(n))
        return set(self.server.asked)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "random", random.Random(0))  # else 12 programs may miss a server
    return World(tmp_path)


def used(sandbox: FusionSandbox) -> set[str]:
    return {endpoint.url for endpoint in endpoints(sandbox)}


def endpoints(sandbox: FusionSandbox) -> list[Endpoint]:
    return sandbox._open().fleet.members._used


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.02)


async def test_one_that_is_added_gets_programs_once_it_was_examined(world, capfd):
    async with world.fusion() as sandbox:
        assert await world.asked(sandbox) == {"one"}
        world.server.always["two"] = lambda _: httpx.Response(503)
        world.name("one", "two")
        await until(lambda: "does not answer (HTTP 503)" in capfd.readouterr().err)
        assert await world.asked(sandbox) == {"one"}
        del world.server.always["two"]
        await until(lambda: "new, and used from now on; there are 2" in capfd.readouterr().err)
        assert await world.asked(sandbox) == {"one", "two"}


async def test_one_that_is_not_named_any_more_gets_none_and_ends_what_it_has(world):
    world.name("one", "two")
    world.server.sandbox.delay_s = 0.3
    async with world.fusion() as sandbox:
        running = [asyncio.ensure_future(outputs(sandbox, str(n))) for n in range(8)]
        await asyncio.sleep(0.15)
        world.name("one")
        assert await asyncio.gather(*running) == [[str(n)] for n in range(8)]
        world.server.sandbox.delay_s = 0
        assert await world.asked(sandbox) == {"one"}


async def test_the_last_one_gets_the_requests_of_those_that_left(world):
    world.name("one", "two", "three")
    async with world.fusion(max_concurrency=CORES) as sandbox:
        world.name("one")
        await until(lambda: used(sandbox) == {"http://one:8080"})
        world.server.sandbox.delay_s, world.server.sandbox.most_running = 0.05, 0
        await asyncio.gather(*(outputs(sandbox, str(n)) for n in range(40)))
        assert world.server.sandbox.most_running == CORES


async def test_one_that_differs_is_refused_with_a_line_and_the_others_go_on(world, capfd):
    other = Server("two", sandbox=fake(machine="namespaces/other"))
    world.transport = Hosts(one=world.server, two=other)
    async with world.fusion() as sandbox:
        world.name("one", "two")
        said = ""
        while "not used" not in said:
            await asyncio.sleep(0.02)
            said += capfd.readouterr().err
        assert "rlimit/cpython-3.11 and namespaces/other" in said
        other.asked.clear()
        assert await world.asked(sandbox) == {"one"}
        assert other.asked == []


async def test_a_file_that_is_damaged_or_gone_changes_nothing(world, capfd):
    world.name("one", "two")
    async with world.fusion() as sandbox:
        for damage in ("", "no address\n", None):
            if damage is None:
                world.file.unlink()
            else:
                world.file.write_text(damage)
            await asyncio.sleep(0.2)
            assert await world.asked(sandbox) == {"one", "two"}
        assert capfd.readouterr().err.count("the servers that it last named are kept") == 1


async def test_none_left_is_waited_for_once_and_not_by_each_request(world):
    async with world.fusion(retry_s=0.5) as sandbox:
        world.server.always["two"] = lambda _: httpx.Response(503)
        world.name("two")
        await until(lambda: not used(sandbox))
        started = time.monotonic()
        for n in range(60):
            with pytest.raises(SandboxError, match="no sandbox server is left"):
                await outputs(sandbox, str(n))
        assert time.monotonic() - started < 20  # each of them for 0.5 s would be 30


async def test_each_address_of_a_name_is_a_server(world, monkeypatch):
    addresses = ["10.0.0.1", "10.0.0.2", "fd00::1"]
    world.server.faults |= {address: [] for address in [*addresses, "10.0.0.3"]}

    async def getaddrinfo(host, port, **_):
        assert (host, port) == ("judge.default.svc", 8080)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses * 2]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    name = "dns+http://judge.default.svc:8080"
    sandbox = FusionSandbox([name], transport=world.server, refresh_s=0.05, retry_s=5.0)
    async with sandbox:
        assert await world.asked(sandbox) == {"10.0.0.1", "10.0.0.2", "fd00::1"}
        addresses[:] = ["10.0.0.3"]
        await until(lambda: used(sandbox) == {"http://10.0.0.3:8080"})
        addresses.clear()
        await asyncio.sleep(0.2)
        assert await world.asked(sandbox) == {"10.0.0.3"}


async def test_a_name_without_addresses_is_waited_for_and_then_an_outage(monkeypatch):
    monkeypatch.setattr(members, "_LOOK_S", 0.05)
    with pytest.raises(SandboxError, match=r"names no server: dns.*not known"):
        async with FusionSandbox(["dns+http://no-such-name.invalid"], retry_s=0.2):
            pass


# ── a server that drains ──────────────────────────────────────────────────────────────────────────


class Draining(httpx.AsyncBaseTransport):
    """Two servers of this project, each with its admission."""

    def __init__(self) -> None:
        self.admissions = {host: Admission(64, 64) for host in ("one", "two")}
        self.sandbox = fake()
        self._apps = {
            host: httpx.ASGITransport(create_app(self.sandbox, admission, Settings(hosts=("*",))))  # type: ignore[arg-type]
            for host, admission in self.admissions.items()
        }
        self.n_run = dict.fromkeys(self.admissions, 0)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        response = await self._apps[host].handle_async_request(request)
        self.n_run[host] += request.url.path == wire.RUN_BATCH and response.status_code == 200
        return response


async def test_a_draining_server_ends_what_it_has_and_others_get_the_rest():
    servers = Draining()
    async with fusion(servers, "one", "two") as sandbox:
        servers.sandbox.delay_s = 0.3
        running = [asyncio.ensure_future(outputs(sandbox, str(n))) for n in range(8)]
        await until(lambda: servers.admissions["one"].running > 0)
        servers.admissions["one"].leaving = True
        assert await asyncio.gather(*running) == [[str(n)] for n in range(8)]
        assert servers.admissions["one"].idle
        servers.sandbox.delay_s, before = 0, servers.n_run["one"]
        calls = len(servers.sandbox.calls)
        for n in range(12):
            assert await outputs(sandbox, str(n)) == [str(n)]
        assert servers.n_run["one"] == before
        assert len(servers.sandbox.calls) == calls + 12, "a program ran twice"


async def test_what_comes_back_at_its_address_is_examined_anew(capfd):
    servers = Draining()
    async with fusion(servers, "one", "two") as sandbox:
        servers.admissions["one"].leaving = True
        for n in range(40):  # each is sent to either server by chance
            await outputs(sandbox, str(n))
        assert [endpoint.known for endpoint in endpoints(sandbox)] == [False, True]
