"""A proxy before a SandboxFusion server that fails on command, as networks and proxies do.

    python -m tests.soak.fault_proxy BACKEND_PORT FOLDER

Prints its port. FOLDER/fault holds "NAME SHARE": each request to run one of that share of programs fails
so, each time it is tried again. FOLDER/hits gets a line per failed request.
"""

import asyncio
import base64
import hashlib
import json
import os
import socket
import struct
import sys
from enum import StrEnum
from pathlib import Path

from coding_model_project.sandbox.fusion import wire

_SLOW_S = 1.0
_HANG_S = 3600.0
_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
_NOTHING_RAN = (
    b'{"status": "Success", "message": "", "compile_result": null, "run_result": {"status": '
    b'"Finished", "execution_time": 0.1, "return_code": 0, "stdout": "", "stderr": ""}, "files": {}}'
)


class Fault(StrEnum):
    """A fault of a request."""

    none = "none"
    reset = "reset"
    """The connection is reset."""
    http_500 = "http_500"
    busy = "busy"
    """HTTP 429 with Retry-After."""
    noise = "noise"
    """Bytes that are not HTTP."""
    page = "page"
    """A proxy's HTML page, with HTTP 200."""
    bad_gateway = "bad_gateway"
    """The same with HTTP 502."""
    cut = "cut"
    """Half of the answer."""
    empty_success = "empty_success"
    """An answer that reports success, without results."""
    slow = "slow"
    """The answer, late."""
    hang = "hang"
    """No answer, except to pings."""


def choose(folder: Path, fault: Fault, share: float = 1.0) -> None:
    """Set the fault of the proxy in this folder from now on."""
    partial = folder / "fault.partial"
    partial.write_text(f"{fault} {share}")
    partial.replace(folder / "fault")


def hits(folder: Path) -> list[str]:
    """Return the names of the faults that requests have met so far, in order."""
    path = folder / "hits"
    return path.read_text().split() if path.exists() else []


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one HTTP message: head and body. Both are empty at the stream's end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b"", b""
    lengths = [
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    ]
    return head, await reader.readexactly(sum(lengths))


class Proxy:
    def __init__(self, backend_port: int, folder: Path) -> None:
        self._port, self._folder = backend_port, folder

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 26)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader))[0]:
                await self._answer(*request, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # a side has gone: so does the connection
        finally:
            writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        fault = self._fault(head, body)
        match fault:
            case Fault.reset:
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raise ConnectionResetError
            case Fault.hang:
                await asyncio.sleep(_HANG_S)
            case Fault.http_500:
                writer.write(_message(500, b"Internal Server Error"))
            case Fault.busy:
                writer.write(_message(429, b"{}", "retry-after: 1\r\n"))
            case Fault.noise:
                writer.write(os.urandom(200) + b"\r\n\r\n")
                raise ConnectionResetError
            case Fault.page:
                writer.write(_message(200, _PAGE))
            case Fault.bad_gateway:
                writer.write(_message(502, _PAGE))
            case Fault.empty_success:
                writer.write(_message(200, _NOTHING_RAN))
            case Fault.cut:
                answer = await self._forward(head, body)
                writer.write(answer[: len(answer) // 2])
                await writer.drain()
                raise ConnectionResetError
            case Fault.slow:
                await asyncio.sleep(_SLOW_S)
                writer.write(await self._forward(head, body))
            case Fault.none:
                writer.write(await self._forward(head, body))
        await writer.drain()

    def _fault(self, head: bytes, body: bytes) -> Fault:
        path = head.split(b" ", 2)[1].decode()
        if path not in (wire.RUN_CODE, wire.RUN_BATCH):
            return Fault.none
        name, share = (self._folder / "fault").read_text().split()
        if name == Fault.none or min(map(_drawn, _programs(path, body)), default=1.0) >= float(
            share
        ):
            return Fault.none
        with (self._folder / "hits").open("a") as file:
            file.write(f"{name}\n")
        return Fault(name)

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)
        try:
            writer.write(head + body)
            answer = b"".join(await _read(reader))
        finally:
            writer.close()
        if not answer:
            raise ConnectionResetError
        return answer


def _programs(path: str, body: bytes) -> list[str]:
    """Return the programs in a `FusionSandbox` request; none if it only probes the server."""
    content = json.loads(body)
    if (
        path == wire.RUN_CODE
    ):  # a server that confines nothing is sent a file (`sandbox.fusion.capabilities`)
        in_file = (content.get("files") or {}).get("coding_model_project.request")
        if in_file is None:
            return []
        content = json.loads(base64.b64decode(in_file))
    return [program["source"] for program in content["programs"]]


def _drawn(program: str) -> float:
    """Return a number from 0 to 1 that depends only on the program."""
    return int.from_bytes(hashlib.sha256(program.encode()).digest()[:4]) / 2**32


def _message(status: int, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Whatever\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


if __name__ == "__main__":
    asyncio.run(Proxy(int(sys.argv[1]), Path(sys.argv[2])).serve())
