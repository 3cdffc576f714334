"""Bounds on a client before its request has arrived."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from coding_model_project.server import listening
from coding_model_project.server.listening import BoundedServer, config_of


async def _hello(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(connections):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = BoundedServer(config_of(_hello, log_config=None), connections)
        task = asyncio.ensure_future(server._serve([listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listening.getsockname()[1], server
        server.should_exit = server.force_exit = True
        await task


async def says_hello(port):
    async with httpx.AsyncClient(timeout=5) as client:
        return (await client.get(f"http://127.0.0.1:{port}/")).text == "hello"


async def connected(port, content=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    return reader, writer


async def is_closed(reader):
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 5) == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_slow_clients_leave_places_to_others(sent):
    async with serving(connections=8) as (port, server):
        slow = [await connected(port, sent) for _ in range(20)]
        assert await says_hello(port)
        assert len(server.server_state.connections) <= 8
        assert await is_closed(slow[0][0]), "the one that waited longest made place"
        for _, writer in slow:
            writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx"],
)
async def test_a_request_that_does_not_arrive_is_given_up(monkeypatch, sent):
    monkeypatch.setattr(listening, "REQUEST_S", 0.5)
    async with serving(connections=8) as (port, _):
        reader, writer = await connected(port, sent)
        assert await is_closed(reader)
        writer.close()


async def test_headers_without_end_are_refused():
    async with serving(connections=8) as (port, _):
        reader, writer = await connected(port, b"GET / HTTP/1.1\r\nx: " + b"y" * (1 << 20))
        assert (await asyncio.wait_for(reader.read(12), 5)) == b"HTTP/1.1 400"
        writer.close()


async def test_a_process_without_descriptors_serves_again_once_it_has_some(monkeypatch):
    async with serving(connections=8) as (port, _):
        real, failures = socket.socket.accept, iter([OSError(24, "Too many open files")] * 2)

        def accept(self):
            for error in failures:
                raise error
            return real(self)

        monkeypatch.setattr(socket.socket, "accept", accept)
        assert await says_hello(port)
