"""SandboxFusion servers at httpx's transport: one that runs programs as the real one does, and faults."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

CUT = 219_264
"""Size at which the real server cuts one write, and says Success."""

Handler = Callable[[httpx.Request], httpx.Response]


class PlainServer(httpx.AsyncBaseTransport):
    """Runs each request's Python as a plain process: nothing confined, output cut in silence.

    Args:
        faults: consulted first, one for each request to /run_code; None lets that one pass.
    """

    def __init__(self, faults: list[Handler | None] | None = None, python: str = sys.executable):
        self.faults = list(faults or [])
        self.python = python
        self.requests: list[dict] = []
        self.most_running = self.running = 0
        self.down = False
        self.delay_s = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("connection refused", request=request)
        if request.url.path == "/v1/ping":
            return httpx.Response(200, json="pong")
        body = json.loads(await request.aread())
        self.requests.append(body)
        if self.faults and (fault := self.faults.pop(0)) is not None:
            return fault(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.delay_s)
            return httpx.Response(200, json=await self._run(body))
        finally:
            self.running -= 1

    async def _run(self, body: dict) -> dict:
        def limit() -> None:
            if (mb := body.get("memory_limit_MB", -1)) > 0:
                for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK):
                    resource.setrlimit(kind, (mb << 20, resource.getrlimit(kind)[1]))

        with tempfile.TemporaryDirectory() as folder:
            name = "bash" if body["language"] == "bash" else self.python
            script = Path(folder) / "tmpcode"
            script.write_text(body["code"])
            for path, content in body["files"].items():
                (Path(folder) / path).write_bytes(base64.b64decode(content))
            started = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                name, str(script), cwd=folder, stdin=-1, stdout=-1, stderr=-1, preexec_fn=limit,
                start_new_session=True,
            )  # fmt: skip
            status, code = "Finished", None
            try:
                async with asyncio.timeout(body["run_timeout"]):
                    out, err = await process.communicate((body["stdin"] or "").encode())
                code = process.returncode
            except TimeoutError:
                process.send_signal(signal.SIGKILL)
                await process.wait()
                status, out, err = "TimeLimitExceeded", b"", b""
            files = {
                path: base64.b64encode((Path(folder) / path).read_bytes()).decode()
                for path in body["fetch_files"]
                if (Path(folder) / path).is_file()
            }
        ran = {
            "status": status,
            "execution_time": time.monotonic() - started,
            "return_code": code,
            "stdout": out.decode("utf-8", "replace")[:CUT],
            "stderr": err.decode("utf-8", "replace")[:CUT],
        }
        return {
            "status": "Success" if code == 0 else "Failed",
            "message": "",
            "compile_result": None,
            "run_result": ran,
            "executor_pod_name": None,
            "files": files,
        }


def respond(status: int, *, text: str = "", **headers: str) -> Handler:
    """A fault: this answer instead of the server's."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(status, text=text, headers=names)


def answer(**fields: object) -> Handler:
    """A fault: an answer of /run_code with these fields."""
    content = {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "run_result": None,
        "executor_pod_name": None,
        "files": {},
    }
    return lambda _request: httpx.Response(200, json=content | fields)


def broken(error: type[httpx.TransportError]) -> Handler:
    """A fault: the connection breaks so."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise error("broken on purpose", request=request)

    return fail
