"""Capabilities of a server, learned by running probe programs on it first."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coding_model_project import strict_json
from coding_model_project.errors import ConfigError
from coding_model_project.isolation import syscalls
from coding_model_project.sandbox import conformance_cases
from coding_model_project.sandbox.carried import messages
from coding_model_project.sandbox.carried.messages import Answer, NotAnAnswer, Request, Task
from coding_model_project.sandbox.fusion import bundle, wire
from coding_model_project.sandbox.fusion.bundle import Driver
from coding_model_project.sandbox.fusion.endpoint import NoSuchPath, Unavailable, parsed
from coding_model_project.sandbox.fusion.fleet import Send
from coding_model_project.types import Execution, Input, Limits, Program, Status, Stdin

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
        return _ask(self.driver, self.tier, request)

    def read(self, data: bytes, request: Request) -> Answer:
        """Return the outcomes in the answer to a request.

        Raises:
            Unavailable: the server reports its own failure, or was too slow.
            NotAnAnswer: the answer is none to this request; with what it is.
        """
        return _read(self.driver, data, request)


def _ask(driver: Driver | None, tier: str, request: Request) -> tuple[str, wire.Body, float]:
    longest_s = max(task.longest_s for task in request.tasks)
    run_s = request.budget_s + longest_s + OWN_S
    if driver is None:
        return wire.RUN_BATCH, messages.batch(request), run_s
    body = driver.body(tier, messages.encode_request(request), run_s)
    return wire.RUN_CODE, body, run_s


def new_request(
    tasks: Sequence[Task], budget_s: float, preload: Sequence[str] = ()
) -> messages.Request:
    """Return a request with a new secret."""
    return Request(
        secret=os.urandom(16), tasks=tuple(tasks), budget_s=budget_s, preload=tuple(preload)
    )


async def learn(send: Send) -> Facts:
    """Probe a server.

    Raises:
        Unavailable: it does not work now.
        ConfigError: it cannot be used, and why.
    """
    look = await _look(send)
    flood = f"import sys\nsys.stdout.write('x' * {_FLOOD})"
    printed = await _stdout(send, wire.run_code(flood, "python", run_s=_PROBE_S))
    common = {
        "memory_limits_stack": look["stack"] == 1024 << 20,
        "cuts_output": len(printed) != _FLOOD,
        "cores": max(1, int(look["cores"] or 1)),
    }
    try:
        answer = await _answer(send, None, "", [_hello()])
        _check_hello(answer)
    except NoSuchPath:
        driver = await _build(send, look)
        tier, identity = await _strongest_tier(send, driver)
        return Facts(tier=tier, identity=identity, driver=driver, **common)
    except NotAnAnswer as error:
        raise Unavailable(str(error)) from error
    return Facts(tier=answer.identity.partition("/")[0], identity=answer.identity, **common)


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


async def _run_code(send: Send, body: wire.Body) -> wire.Response:
    return parsed(await send(wire.RUN_CODE, body, body["run_timeout"]))


async def _stdout(send: Send, body: wire.Body) -> str:
    response = await _run_code(send, body)
    if response.status == wire.SANDBOX_ERROR:
        raise Unavailable(response.message[:200] or "SandboxError")
    return response.ran.stdout if response.ran else ""


async def _build(send: Send, look: dict[str, Any]) -> Driver:
    """Have the server compile the driver.

    Raises:
        ConfigError: it cannot, and why.
    """
    hello = wire.run_code("exec env -i WORD=hello printenv WORD", "bash", run_s=_PROBE_S)
    if (await _stdout(send, hello)).strip() != "hello":
        raise ConfigError("the server cannot run bash, by which the driver starts")
    if look["machine"] not in syscalls.ARCHITECTURES:
        raise ConfigError(f"no driver for machines of kind {look['machine']!r}")
    response = await _run_code(send, bundle.build_body())
    driver = bundle.built(response, look["python"])
    if driver is None:
        raise ConfigError(f"the server cannot compile the driver: {_last_words(response)}")
    return driver


def _last_words(response: wire.Response) -> str:
    if response.ran is None:
        return f"{response.status} {response.message[:200]}".strip()
    lines = response.ran.stderr.strip().splitlines()
    end = f"{response.ran.status}, return code {response.ran.return_code}"
    return f"{end} {lines[-1][-200:] if lines else ''}".strip()


async def _strongest_tier(send: Send, driver: Driver) -> tuple[str, str]:
    """Return the strongest tier at which a driver confines programs, as tests prove, and its identity."""
    missing = []
    for tier in TIERS:
        try:
            answer = await _answer(send, driver, tier, [_hello()])
            _check_hello(answer)
            if not answer.identity.startswith("rlimit/"):
                await _check_isolation(send, driver, tier)
            return tier, answer.identity
        except NotAnAnswer as error:
            missing.append(f"{tier}: {error}")
    raise ConfigError(f"the server cannot isolate programs from each other ({'; '.join(missing)})")


def _hello() -> Task:
    return _task("print(input())", Stdin("a"))


def _task(source: str, given: Input) -> Task:
    return Task(program=Program(source=source), inputs=(given,), limits=_LIMITS)


def _check_hello(answer: Answer) -> None:
    execution = _only(answer, 0)
    if execution.status is not Status.finished or execution.stdout != "a\n":
        raise NotAnAnswer(f"{execution.status}: {execution.stderr_tail[-100:]}")


async def _check_isolation(send: Send, driver: Driver, tier: str) -> None:
    cases = [case for case in conformance_cases.CASES if case.isolation]
    answer = await _answer(send, driver, tier, [_task(case.source, case.given) for case in cases])
    for index, case in enumerate(cases):
        if problem := case.problem(_only(answer, index)):
            raise NotAnAnswer(f"{case.name}: {problem}")


async def _answer(send: Send, driver: Driver | None, tier: str, tasks: Sequence[Task]) -> Answer:
    request = new_request(tasks, len(tasks) * _LIMITS.wall_s)
    return _read(driver, await send(*_ask(driver, tier, request)), request)


def _only(answer: Answer, index: int) -> Execution:
    """Return the execution of a task with one input."""
    if index >= len(answer.outcomes):
        raise NotAnAnswer(answer.error or "no execution")
    outcome = answer.outcomes[index]
    if outcome.error or outcome.lost or len(outcome.executions) != 1:
        raise NotAnAnswer(f"{outcome.error or outcome.lost or 'no execution'}")
    return outcome.executions[0]


def _read(driver: Driver | None, data: bytes, request: Request) -> Answer:
    if driver is None:
        return messages.decode_batch(data, request)
    response = parsed(data)
    if response.status == wire.SANDBOX_ERROR:
        raise Unavailable(response.message[:200] or "SandboxError")
    if response.ran is None:
        raise NotAnAnswer(f"{response.status}, and nothing ran")
    try:
        fetched = base64.b64decode(response.files.get(bundle.ANSWER_FILE, ""))
        return messages.decode_answer(fetched, request)
    except (ValueError, NotAnAnswer) as error:
        if response.ran.status == "TimeLimitExceeded":
            raise Unavailable("the driver did not end in time") from error
        raise NotAnAnswer(f"{error}: {_last_words(response)}") from error
