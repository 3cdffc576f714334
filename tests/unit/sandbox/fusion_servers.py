"""SandboxFusion servers at httpx's transport: like the real one, like ours, and faults before them."""

import asyncio
import base64
import hashlib
import json
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from coding_model_project.sandbox.fusion import FusionSandbox, wire
from coding_model_project.sandbox.fusion.capabilities import Facts
from coding_model_project.server.app import Settings, create_app
from coding_model_project.server.listening import Admission
from coding_model_project.types import Execution, Limits, Program, Status, Stdin
from tests.fakes import FakeSandbox

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
        if request.url.path == wire.RUN_BATCH:  # a path of this project's own servers
            return httpx.Response(404, json={"detail": "Not Found"})
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
        printed = [stream.decode("utf-8", "replace")[:CUT] for stream in (out, err)]
        ran = phase(status, code, *printed, execution_time=time.monotonic() - started)
        return ran_code(status="Success" if code == 0 else "Failed", run_result=ran, files=files)


def phase(status="Finished", code: int | None = 0, stdout="", stderr="", execution_time=0.5):
    """A phase of an answer of /run_code."""
    return {
        "status": status,
        "execution_time": execution_time,
        "return_code": code,
        "stdout": stdout,
        "stderr": stderr,
    }


def ran_code(**fields: object) -> dict:
    """An answer of /run_code, with these fields."""
    nothing = dict.fromkeys(("compile_result", "run_result", "executor_pod_name"))
    return {"status": "Success", "message": "", "files": {}} | nothing | fields


def driver_answer(*lost: str, secret: bytes) -> bytes:
    """The answer of a driver that lost each program for a reason."""
    programs = [{"frames": [], "alone": False, "lost": one} for one in lost]
    head = {"identity": "rlimit/cpython-3.11", "programs": programs, "error": None}
    encoded = json.dumps(head).encode("ascii")
    content = b"-" + len(encoded).to_bytes(4, "little") + encoded
    return hashlib.blake2b(content, key=secret).digest() + content


def respond(status: int, *, text: str = "", **headers: str) -> Handler:
    """A fault: this answer instead of the server's."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(status, text=text, headers=names)


def answer(**fields: object) -> Handler:
    """A fault: an answer of /run_code with these fields."""
    return lambda _request: httpx.Response(200, json=ran_code(**fields))


def broken(error: type[httpx.TransportError]) -> Handler:
    """A fault: the connection breaks so."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise error("broken on purpose", request=request)

    return fail


URL = "http://one:8080"
LIMITS = Limits(cpu_s=1, wall_s=2, output_kb=256)
CORES = 4
FACTS = Facts(
    tier="rlimit", identity="rlimit/cpython-3.11", memory_limits_stack=True, cuts_output=True
)


def program_of_a_probe(source: str, given) -> Execution:
    """Answer the start-up probe as a working server does; any other program prints its input."""
    text = given.text if isinstance(given, Stdin) else ""
    if "getrlimit" in source:
        text = json.dumps({"echo": text.strip(), "stack": -1, "cores": CORES})
    elif "* 300000" in source:
        text = "x" * 300_000
    elif "input()" in source:
        text = f"{text}\n"
    return Execution(status=Status.finished, stdout=text)


def fake(
    answer=program_of_a_probe, machine: str = "rlimit/cpython-3.11", kind=FakeSandbox
) -> FakeSandbox:
    """A sandbox that says it is one of this machine."""
    return kind(answer, identity=f"fake/{machine}")


class Server(httpx.AsyncBaseTransport):
    """This project's server over a fake sandbox, with faults before it, by host."""

    def __init__(
        self,
        *hosts: str,
        sandbox: FakeSandbox | None = None,
        token: str | None = None,
        at_once: int = CORES,
    ):
        self.sandbox = sandbox or fake()
        settings = Settings(token=token, hosts=("*",))
        app = create_app(self.sandbox, Admission(at_once, 512), settings)  # type: ignore[arg-type]
        self._inner = httpx.ASGITransport(app)
        self.faults: dict[str, list[Handler]] = {host: [] for host in hosts or ("one",)}
        self.always: dict[str, Handler] = {}
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if host in self.always:
            return self.always[host](request)
        if request.url.path in (wire.RUN_CODE, wire.RUN_BATCH):
            self.asked.append(host)
            if self.faults[host]:
                return self.faults[host].pop(0)(request)
        return await self._inner.handle_async_request(request)


class Hosts(httpx.AsyncBaseTransport):
    """Servers by host."""

    def __init__(self, **servers: httpx.AsyncBaseTransport) -> None:
        self.servers = servers

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self.servers[request.url.host].handle_async_request(request)


def fusion(server: httpx.AsyncBaseTransport, *hosts: str, **options) -> FusionSandbox:
    urls = [f"http://{host}:8080" for host in hosts or ("one",)]
    options = {"retry_s": 20.0, "timeout_s": 5.0} | options
    return FusionSandbox(urls, transport=server, **options)


async def outputs(sandbox: FusionSandbox, *texts: str) -> list[str]:
    inputs = [Stdin(text) for text in texts]
    return [e.stdout for e in await sandbox.run(Program(source="x"), inputs, LIMITS)]
