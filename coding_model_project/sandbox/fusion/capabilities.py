"""What a server can do, learnt by running programs on it before any that matters."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from coding_model_project.errors import ConfigError
from coding_model_project.sandbox import conformance_cases
from coding_model_project.sandbox.fusion import driver_messages, wire
from coding_model_project.sandbox.fusion.bundle import driver_code
from coding_model_project.sandbox.fusion.endpoint import Unavailable
from coding_model_project.types import Execution, Input, Limits, Program, Status, Stdin

Send = Callable[[wire.Body, float], Awaitable[wire.Response]]

TIERS = ("namespaces", "seccomp", "rlimit")
"""How a driver can confine programs, strongest first."""

BUDGET_S = 10.0
"""Wall seconds after which a driver begins no further input: answers come while proxies still wait."""

OWN_S = 30.0
"""Wall seconds a driver may take for itself, compiling included."""

_LIMITS = Limits(cpu_s=5.0, wall_s=10.0, memory_mb=256, output_kb=64)
_FLOOD = 300_000

_LOOK = """
import json, resource, sys
print(json.dumps({"echo": input(), "stack": resource.getrlimit(resource.RLIMIT_STACK)[0]}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What differs between servers and their versions."""

    tier: str
    """At which the driver confines programs there."""
    identity: str
    """Tier and interpreter, as the driver says."""
    memory_limits_stack: bool
    """`memory_limit_MB` also sets the size of stacks: threads, numpy and Node then fail to start."""
    cuts_output: bool
    """Output above 128 KiB does not arrive whole, in silence."""


def ask(request: driver_messages.Request, tier: str) -> tuple[wire.Body, float]:
    """The body by which a driver is sent a request, and the wall seconds it may take."""
    run_s = request.budget_s + request.limits.wall_s + OWN_S
    body = wire.run_code(
        driver_code(tier),
        "python",
        stdin=driver_messages.encode_request(request),
        run_s=run_s,
        fetch_files=[driver_messages.ANSWER_FILE],
    )
    return body, run_s


def new_request(
    program: Program, inputs: tuple[Input, ...], limits: Limits
) -> driver_messages.Request:
    """A request with a secret of its own."""
    return driver_messages.Request(
        secret=os.urandom(16), program=program, inputs=inputs, limits=limits, budget_s=BUDGET_S
    )


async def learn(send: Send) -> Facts:
    """Look at a server.

    Raises:
        Unavailable: it does not do its work now.
        ConfigError: it cannot be used, and why.
    """
    word = os.urandom(8).hex()
    look = wire.run_code(_LOOK, "python", stdin=f"{word}\n", run_s=10.0, memory_mb=1024)
    seen = await _stdout(send, look)
    try:
        found = json.loads(seen)
        echo, stack = found["echo"], found["stack"]
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"the server does not run Python as it should: {seen[:80]!r}") from None
    if echo != word:
        raise ConfigError("the server does not give programs their standard input")
    flood = f"import sys\nsys.stdout.write('x' * {_FLOOD})"
    printed = await _stdout(send, wire.run_code(flood, "python", run_s=10.0))
    tier, identity = await _strongest_tier(send)
    return Facts(
        tier=tier,
        identity=identity,
        memory_limits_stack=stack == 1024 << 20,
        cuts_output=len(printed) != _FLOOD,
    )


async def _stdout(send: Send, body: wire.Body) -> str:
    response = await send(body, body["run_timeout"])
    if response.status == wire.SANDBOX_ERROR:
        raise Unavailable(response.message[:200] or "SandboxError")
    return response.ran.stdout if response.ran else ""


async def _strongest_tier(send: Send) -> tuple[str, str]:
    """The tier a driver can confine programs at, proven by what they could not do, and its identity."""
    missing = []
    for tier in TIERS:
        try:
            answer = await _answer(send, Program(source="print(input())"), Stdin("a"), tier)
            execution = one(answer)
            if execution.status is not Status.finished or execution.stdout != "a\n":
                raise driver_messages.NotAnAnswer(
                    f"{execution.status}: {execution.stderr_tail[-100:]}"
                )
            if not answer.identity.startswith("rlimit/"):
                await _check_isolation(send, tier)
            return tier, answer.identity
        except driver_messages.NotAnAnswer as error:
            missing.append(f"{tier}: {error}")
    raise ConfigError(
        f"the server cannot run programs apart from each other ({'; '.join(missing)})"
    )


async def _check_isolation(send: Send, tier: str) -> None:
    for case in conformance_cases.CASES:
        if not case.isolation:
            continue
        answer = await _answer(send, Program(source=case.source), case.given, tier)
        if problem := case.problem(one(answer)):
            raise driver_messages.NotAnAnswer(f"{case.name}: {problem}")


async def _answer(send: Send, program: Program, given: Input, tier: str) -> driver_messages.Answer:
    request = new_request(program, (given,), _LIMITS)
    response = await send(*ask(request, tier))
    return read_answer(response, request)


def one(answer: driver_messages.Answer) -> Execution:
    """The execution of a request with one input."""
    if answer.error or len(answer.executions) != 1:
        raise driver_messages.NotAnAnswer(f"{answer.error or 'no execution'}")
    return answer.executions[0]


def read_answer(
    response: wire.Response, request: driver_messages.Request
) -> driver_messages.Answer:
    """The driver's answer in a server's.

    Raises:
        Unavailable: the server says that it failed, or it was too slow.
        NotAnAnswer: the driver was kept from answering; says what it or the server said.
    """
    if response.status == wire.SANDBOX_ERROR:
        raise Unavailable(response.message[:200] or "SandboxError")
    ran = response.ran
    if ran is None:
        raise driver_messages.NotAnAnswer(f"{response.status}, and nothing ran")
    fetched = response.files.get(driver_messages.ANSWER_FILE)
    try:
        return driver_messages.decode_answer(
            driver_messages.from_base64(fetched) if fetched else ran.stdout, request
        )
    except driver_messages.NotAnAnswer as error:
        if ran.status == "TimeLimitExceeded":
            raise Unavailable("the driver did not end in time") from error
        said = ran.stderr.strip().splitlines()
        how = f"{ran.status}, return code {ran.return_code}"
        raise driver_messages.NotAnAnswer(
            f"{error}: {how} {said[-1][-200:] if said else ''}".strip()
        ) from error
