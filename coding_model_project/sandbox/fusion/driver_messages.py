"""What a driver is asked and what it answers, as text that survives any pipe, or is seen not to.

A request goes in on the driver's standard input, an answer comes out as one line of its standard
output, signed with a secret that only host and driver hold: a line that a program printed, or one
that was cut on the way, is not an answer. Expected outputs are in neither.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import time
import zlib
from dataclasses import asdict, astuple, dataclass
from typing import Any

from coding_model_project import codec as values
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import answers
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Files,
    Input,
    Limits,
    Opaque,
    Plain,
    Program,
    Status,
    Stdin,
)

ANSWER = "coding_model_project.answer/1"
"""First word of an answer's line."""

ANSWER_FILE = "coding_model_project.answer"
"""Where a driver leaves an answer too long for standard output, to be fetched."""

MAX_LINE = 96 << 10
"""Bytes of standard output that every server carries whole (it cuts above 128 KiB, in silence)."""

_MAX_JSON = 64 << 20
"""Bytes of an answer's JSON: none that was asked for is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program and the inputs to run it on, in order."""

    secret: bytes
    program: Program
    inputs: tuple[Input, ...]
    limits: Limits
    budget_s: float
    """No further input is begun after so many wall seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first inputs' executions: at least one, unless there is an error."""

    identity: str
    """Tier and interpreter, e.g. "seccomp/cpython-3.10"."""
    executions: tuple[Execution, ...] = ()
    error: tuple[str, str] | None = None
    """Name of the exception (`errors`) that kept the program from being run, and its message."""


class NotAnAnswer(Exception):
    """The text holds no answer to this request: nothing, a forgery, or only a part."""


def encode_request(request: Request) -> str:
    """A request as ASCII text."""
    program = request.program
    content = {
        "secret": request.secret.hex(),
        "source": program.source,
        "language": program.language,
        "files": {name: base64.b64encode(data).decode() for name, data in program.files.items()},
        "inputs": [_input_to_json(given) for given in request.inputs],
        "limits": asdict(request.limits),
        "budget_s": request.budget_s,
    }
    return _pack(content).decode()


def decode_request(text: str) -> Request:
    """The request in a text of `encode_request`.

    Raises:
        ValueError: it is none.
    """
    try:
        content = _unpack(text.encode())
        program = Program(
            source=content["source"],
            language=content["language"],
            files={name: base64.b64decode(data) for name, data in content["files"].items()},
        )
        return Request(
            secret=bytes.fromhex(content["secret"]),
            program=program,
            inputs=tuple(_input_from_json(picture) for picture in content["inputs"]),
            limits=_limits(content["limits"]),
            budget_s=content["budget_s"],
        )
    except (KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ValueError(f"not a request: {error}") from error


def encode_answer(answer: Answer, secret: bytes) -> str:
    """An answer as one signed line of ASCII text."""
    content = {
        "identity": answer.identity,
        "executions": [_execution_to_json(execution) for execution in answer.executions],
        "error": answer.error,
    }
    body = _pack(content)
    return f"{ANSWER} {_signature(body, secret)} {body.decode()}\n"


def decode_answer(text: str, request: Request) -> Answer:
    """The answer to a request in what a driver printed.

    Raises:
        NotAnAnswer: there is none with the request's signature.
    """
    for line in reversed(text.split("\n")):
        words = line.split(" ")
        if len(words) != 3 or words[0] != ANSWER:
            continue
        body = words[2].encode()
        if not hmac.compare_digest(words[1].encode(), _signature(body, request.secret).encode()):
            continue
        try:
            return _answer_from_json(_unpack(body), request)
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise NotAnAnswer(f"a signed answer that cannot be read: {error}") from error
    raise NotAnAnswer("no signed answer")


def from_base64(text: str) -> str:
    """The ASCII text of a fetched file; empty if it is none."""
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except ValueError:
        return ""


def within_budget(request: Request, started: float) -> StopWhen:
    """For `Sandbox.run`: stops when the answer is long or late enough to be sent.

    Args:
        started: on the monotonic clock.
    """
    length = 0

    def stop(_index: int, execution: Execution) -> bool:
        nonlocal length
        length += len(_pack(_execution_to_json(execution)))
        return length > MAX_LINE // 2 or time.monotonic() - started > request.budget_s

    return stop


def _signature(body: bytes, secret: bytes) -> str:
    return hmac.new(secret, body, hashlib.sha256).hexdigest()


def _pack(content: Any) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(content).encode("ascii"), 1))


def _unpack(packed: bytes) -> Any:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(base64.b64decode(packed, validate=True), _MAX_JSON)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {_MAX_JSON} bytes")
    return json.loads(data)


def _limits(picture: dict[str, Any]) -> Limits:
    for name, value in picture.items():
        if not 0 < value < math.inf:
            raise ValueError(f"limits.{name}={value}")
    return Limits(**picture)


def _input_to_json(given: Input) -> list[Any]:
    match given:
        case Stdin():
            return ["stdin", given.text]
        case Call():
            return ["call", given.function, values.to_json(given.args)]
        case Asserts():
            return ["asserts", given.source, given.entry_point]
        case Files():
            return ["files", dict(given.contents)]


def _input_from_json(picture: list[Any]) -> Input:
    match picture:
        case ["stdin", str(text)]:
            return Stdin(text)
        case ["call", str(function), args]:
            return Call(function=function, args=values.from_json(args))
        case ["asserts", str(source), entry_point]:
            return Asserts(source=source, entry_point=entry_point)
        case ["files", dict(contents)]:
            return Files(contents=contents)
    raise ValueError("an unknown input")


def _execution_to_json(execution: Execution) -> list[Any]:
    fields = {**dict(zip(_FIELDS, astuple(execution), strict=True)), "value": None}
    fields["value"] = values.dumps(execution.value).decode()
    return list(fields.values())


_FIELDS = tuple(Execution.__dataclass_fields__)


def _answer_from_json(content: dict[str, Any], request: Request) -> Answer:
    error = content["error"]
    executions = content["executions"]
    if len(executions) > len(request.inputs):
        raise ValueError(f"{len(executions)} answers for {len(request.inputs)} inputs")
    return Answer(
        identity=str(content["identity"]),
        executions=tuple(_execution_from_json(picture, request.limits) for picture in executions),
        error=(str(error[0]), str(error[1])) if error else None,
    )


def _execution_from_json(picture: list[Any], limits: Limits) -> Execution:
    fields = dict(zip(_FIELDS, picture, strict=True))
    fields["status"] = Status(fields["status"])
    fields["value"] = _value(fields["value"], limits)
    return Execution(**fields)


def _value(encoded: str, limits: Limits) -> Plain | Opaque:
    if encoded == "null":
        return None
    return answers.decode(encoded.encode(), 2 * (limits.output_kb << 10) + 1024)
