"""Capabilities of a server, learned by running probe programs on it first.

On a server of others, each request carries the driver, which that server compiles once
(`carried.build`).
"""

from __future__ import annotations

import base64
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from coding_model_project import strict_json
from coding_model_project.errors import ConfigError
from coding_model_project.isolation import seccomp
from coding_model_project.isolation.carried_source import carried
from coding_model_project.sandbox import conformance
from coding_model_project.sandbox.carried import messages
from coding_model_project.sandbox.carried.messages import Answer, NotAnAnswer, Request, Task
from coding_model_project.sandbox.embedded import slot
from coding_model_project.sandbox.fusion import wire
from coding_model_project.sandbox.fusion.endpoint import NoSuchPath, Unavailable, parsed
from coding_model_project.sandbox.fusion.fleet import Send
from coding_model_project.types import Execution, Input, Limits, Program, Status, Stdin

ANSWER_FILE = "coding_model_project.answer"
"""File in which the driver leaves its answer, to be fetched."""

_DRIVER = (
    "coding_model_project.sandbox.carried.driver",
    "coding_model_project.sandbox.embedded.zygote",
)

_GIVEN, _CODE, _LIBRARY, _REQUEST = (
    f"coding_model_project.{suffix}" for suffix in ("json", "pyc", "so", "request")
)
_BUILD_S = 120.0

_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "PYTHONHASHSEED": "0",  # the same program gives the same output everywhere
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_OPTIONS = ("-S", "-s", "-B", "-X", "int_max_str_digits=0")
"""Options that skip `site`, the slowest part of the start; the driver makes what programs need of it."""

_BASH = """\
exec env -i {variables} ${{LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"}} \\
{command} {standard_input}
"""
"""The start of a new interpreter, since only a new one takes another hash seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver that a server has compiled."""

    python: str
    """Path of the server's interpreter."""
    files: Mapping[str, str] = field(compare=False)
    """Its files in base64, as in requests."""

    def body(self, tier: str, request: bytes, run_s: float) -> wire.Body:
        """Return the body of a request that runs programs, confined at this tier."""
        # With standard input, the server raises and logs an exception per request; a file avoids that.
        # At tier rlimit, programs of other requests could read the file.
        file = tier != "rlimit"
        carried_files = dict(self.files)
        if file:
            carried_files[_REQUEST] = base64.b64encode(request).decode()
        command = [self.python, *_OPTIONS, _CODE, tier]
        code = _BASH.format(
            variables=" ".join(f"{k}={shlex.quote(v)}" for k, v in _VARIABLES.items()),
            command=shlex.join(command),
            standard_input=f"<{_REQUEST}" if file else "",
        )
        return wire.run_code(
            code,
            "bash",
            stdin=None if file else request.decode("ascii"),
            run_s=run_s,
            files=carried_files,
            fetch_files=[ANSWER_FILE],
        )


def build_body() -> wire.Body:
    """Return the body of the request that compiles the driver."""
    files_sent = {_GIVEN: base64.b64encode(_given()).decode()}
    source = files("coding_model_project.sandbox.carried").joinpath("build.py").read_text("utf-8")
    return wire.run_code(
        source, "python", run_s=_BUILD_S, files=files_sent, fetch_files=[_CODE, _LIBRARY]
    )


@lru_cache
def _given() -> bytes:
    given = {
        "sources": carried(*_DRIVER),
        "loop": slot.LOOP.read_text("utf-8"),
        "flags": list(slot.LOOP_FLAGS),
    }
    return json.dumps(given).encode("ascii")


TIERS = ("namespaces", "seccomp", "rlimit")
"""Tiers at which a driver can confine programs, strongest first."""

OWN_S = 30.0
"""Wall seconds that a driver may take beyond its programs, compiling included."""

_PROBE_S = 10.0
_LIMITS = Limits(cpu_s=5.0, wall_s=10.0, memory_mb=256, output_kb=64)
_FLOOD = 300_000

_LOOK = """
import json, os, platform, resource, sys
try: cores = len(os.sched_getaffinity(0))
except OSError: cores = os.cpu_count()
print(json.dumps({
    "echo": input(), "stack": resource.getrlimit(resource.RLIMIT_STACK)[0], "cores": cores,
    "machine": platform.machine(), "python": sys.executable,
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Properties in which servers and their versions differ."""

    tier: str
    """Tier at which programs are confined."""
    identity: str
    """Tier and interpreter, as the driver or the server reports them."""
    memory_limits_stack: bool
    """True if `memory_limit_MB` also sets the stack size: threads, numpy and Node then fail to start."""
    cuts_output: bool
    """True if output above 128 KiB is silently truncated."""
    cores: int = field(default=1, compare=False)
    driver: Driver | None = None
    """The compiled driver; None for this project's own server, which confines programs itself."""

    @property
    def takes_batches(self) -> bool:
        """Return whether it is this project's own server."""
        return self.driver is None

    def ask(self, request: Request) -> tuple[str, wire.Body, float]:
        """Return the path and body of a request that runs programs, and the most wall seconds that it
        takes."""
        longest_s = max(task.longest_s for task in request.tasks)
        run_s = request.budget_s + longest_s + OWN_S
        if self.driver is None:
            return wire.RUN_BATCH, messages.batch(request), run_s
        body = self.driver.body(
            self.tier, json.dumps(messages.for_driver(request)).encode("ascii"), run_s
        )
        return wire.RUN_CODE, body, run_s

    def read(self, data: bytes, request: Request) -> Answer:
        """Return the outcomes in the answer to a request.

        Raises:
            Unavailable: the server reports its own failure, or was too slow.
            NotAnAnswer: the answer is none to this request; with what it is.
        """
        if self.driver is None:
            return messages.decode_batch(data, request)
        response = parsed(data)
        if response.status == wire.SANDBOX_ERROR:
            raise Unavailable(response.message[:200] or "SandboxError")
        if response.run_result is None:
            raise NotAnAnswer(f"{response.status}, and nothing ran")
        try:
            fetched = base64.b64decode(response.files.get(ANSWER_FILE, ""))
            return messages.decode_answer(fetched, request)
        except (ValueError, NotAnAnswer) as error:
            if response.run_result.status == "TimeLimitExceeded":
                raise Unavailable("the driver did not end in time") from error
            raise NotAnAnswer(f"{error}: {_last_words(response)}") from error


async def learn(send: Send) -> Facts:
    """Probe a server.

    Raises:
        Unavailable: it does not work now.
        ConfigError: it cannot be used, and why.
    """
    look = await _look(send)
    flood = f"import sys\nsys.stdout.write('x' * {_FLOOD})"
    printed = await _stdout(send, wire.run_code(flood, "python", run_s=_PROBE_S))
    facts = Facts(
        tier="",
        identity="",
        memory_limits_stack=look["stack"] == 1024 << 20,
        cuts_output=len(printed) != _FLOOD,
        cores=max(1, int(look["cores"] or 1)),
    )
    try:
        identity = await _hello(send, facts)
    except NoSuchPath:
        return await _at_strongest_tier(send, replace(facts, driver=await _build(send, look)))
    except NotAnAnswer as error:
        raise Unavailable(str(error)) from error
    return replace(facts, tier=identity.partition("/")[0], identity=identity)


async def _look(send: Send) -> dict[str, Any]:
    word = os.urandom(8).hex()
    look = wire.run_code(_LOOK, "python", stdin=f"{word}\n", run_s=_PROBE_S, memory_mb=1024)
    seen = await _stdout(send, look)
    try:
        found = strict_json.loads(seen)
        echo = found["echo"]
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"the server does not run Python correctly: {seen[:80]!r}") from None
    if echo != word:
        raise ConfigError("the server does not pass standard input to programs")
    return found


async def _run_code(send: Send, body: wire.Body) -> wire.RunCodeResponse:
    return parsed(await send(wire.RUN_CODE, body, body["run_timeout"]))


async def _stdout(send: Send, body: wire.Body) -> str:
    response = await _run_code(send, body)
    if response.status == wire.SANDBOX_ERROR:
        raise Unavailable(response.message[:200] or "SandboxError")
    return response.run_result.stdout or "" if response.run_result else ""


async def _build(send: Send, look: dict[str, Any]) -> Driver:
    """Have the server compile the driver.

    Raises:
        ConfigError: it cannot, and why.
    """
    hello = wire.run_code("exec env -i WORD=hello printenv WORD", "bash", run_s=_PROBE_S)
    if (await _stdout(send, hello)).strip() != "hello":
        raise ConfigError("the server cannot run bash, by which the driver starts")
    if look["machine"] not in seccomp.ARCHITECTURES:
        raise ConfigError(f"no driver for machines of kind {look['machine']!r}")
    response = await _run_code(send, build_body())
    found = {name: response.files[name] for name in (_CODE, _LIBRARY) if name in response.files}
    if _CODE not in found:
        raise ConfigError(f"the server cannot compile the driver: {_last_words(response)}")
    return Driver(python=look["python"], files=found)


def _last_words(response: wire.RunCodeResponse) -> str:
    if (ran := response.run_result) is None:
        return f"{response.status} {response.message[:200]}".strip()
    lines = (ran.stderr or "").strip().splitlines()
    end = f"{ran.status}, return code {ran.return_code}"
    return f"{end} {lines[-1][-200:] if lines else ''}".strip()


async def _at_strongest_tier(send: Send, facts: Facts) -> Facts:
    """Return the facts with the strongest tier at which the driver confines programs, as tests prove."""
    missing = []
    for tier in TIERS:
        facts = replace(facts, tier=tier)
        try:
            identity = await _hello(send, facts)
            if not identity.startswith("rlimit/"):
                await _check_isolation(send, facts)
            return replace(facts, identity=identity)
        except NotAnAnswer as error:
            missing.append(f"{tier}: {error}")
    raise ConfigError(f"the server cannot isolate programs from each other ({'; '.join(missing)})")


async def _hello(send: Send, facts: Facts) -> str:
    """Run a program, and return the tier and interpreter that the answer names."""
    answer = await _answer(send, facts, [("print(input())", Stdin("a"))])
    execution = _only(answer, 0)
    if execution.status is not Status.finished or execution.stdout != "a\n":
        raise NotAnAnswer(f"{execution.status}: {execution.stderr_tail[-100:]}")
    return answer.identity


async def _check_isolation(send: Send, facts: Facts) -> None:
    cases = [case for case in conformance.CASES if case.isolation]
    answer = await _answer(send, facts, [(case.source, case.given) for case in cases])
    for index, case in enumerate(cases):
        if problem := case.problem(_only(answer, index)):
            raise NotAnAnswer(f"{case.name}: {problem}")


async def _answer(send: Send, facts: Facts, runs: Sequence[tuple[str, Input]]) -> Answer:
    """Run each program on its input."""
    tasks = [
        Task(program=Program(source=source), inputs=(given,), limits=_LIMITS)
        for source, given in runs
    ]
    request = Request(tasks=tuple(tasks), budget_s=len(tasks) * _LIMITS.wall_s)
    return facts.read(await send(*facts.ask(request)), request)


def _only(answer: Answer, index: int) -> Execution:
    """Return the execution of a task with one input."""
    if index >= len(answer.outcomes):
        raise NotAnAnswer(answer.error or "no execution")
    outcome = answer.outcomes[index]
    if outcome.error or outcome.lost or len(outcome.executions) != 1:
        raise NotAnAnswer(f"{outcome.error or outcome.lost or 'no execution'}")
    return outcome.executions[0]
