"""Encoding of requests to a driver and of its answers, with detection of damage.

A request is JSON: programs, each with its inputs. The answer is a file, signed with a secret that only
host and driver hold: a file from a program, or a truncated one, is not an answer. Neither contains
expected outputs. For each program a driver reports the frames with which the zygote answered; this
project's own server reports executions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import signal
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from coding_model_project import codec as values
from coding_model_project.errors import DataError, OverloadError
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded import answers, outcomes
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

MOST_BYTES = 8 << 20
"""Size of an answer after which no further input is started."""

_MAX_CONTENT = 256 << 20
"""Most bytes of an unpacked answer: no valid one is longer."""

_PLAIN, _PACKED = b"-", b"z"
_SIGNATURE = hashlib.blake2b().digest_size
_WORTH_COMPRESSING = 32 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program, its inputs in order, and its limits."""

    program: Program
    inputs: tuple[Input, ...]
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Programs to run one after another."""

    secret: bytes
    tasks: tuple[Task, ...]
    budget_s: float
    """Wall seconds after which no further input is started, except the first."""
    preload: tuple[str, ...] = ()
    """Standard modules that the driver imports in advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a program that was started."""

    executions: tuple[Execution, ...] = ()
    """Executions of its first inputs."""
    lost: str | None = None
    """Reason why the next input has none: an infrastructure failure, not the program's."""
    error: tuple[str, str] | None = None
    """Name and message of the exception (`errors`) because of which the program could not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcomes of the first programs."""

    identity: str
    """Tier and interpreter, such as "seccomp/cpython-3.10"."""
    outcomes: tuple[Outcome, ...] = ()
    error: str | None = None
    """Failure because of which there are no more outcomes."""


def is_continued(inputs: Sequence[Input], index: int) -> bool:
    """Return whether the next input needs the state that this one leaves."""
    following = inputs[index + 1 : index + 2]
    return any(isinstance(given, Asserts) and given.continues for given in following)


class NotAnAnswer(Exception):
    """Bytes that are not an answer to this request: empty, forged, or truncated."""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────


def encode_request(request: Request) -> bytes:
    """Return a request as ASCII."""
    content = {
        "secret": request.secret.hex(),
        "budget_s": request.budget_s,
        "preload": request.preload,
        "programs": [_task_to_json(task) for task in request.tasks],
    }
    return json.dumps(content).encode("ascii")


def decode_request(text: str) -> Request:
    """Return the request in a text of `encode_request`.

    Raises:
        ValueError: it is not a request.
    """
    try:
        content = json.loads(text)
        return Request(
            secret=bytes.fromhex(content["secret"]),
            tasks=tuple(_task_from_json(picture) for picture in content["programs"]),
            budget_s=float(content["budget_s"]),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a request: {error}") from error


def _task_to_json(task: Task) -> dict[str, Any]:
    files = task.program.files.items()
    return {
        "source": task.program.source,
        "files": {name: base64.b64encode(data).decode() for name, data in files},
        "limits": asdict(task.limits),
        "inputs": [_input_to_json(given) for given in task.inputs],
    }


def _task_from_json(picture: dict[str, Any]) -> Task:
    files = {name: base64.b64decode(data) for name, data in picture["files"].items()}
    return Task(
        program=Program(source=picture["source"], files=files),
        inputs=tuple(_input_from_json(given) for given in picture["inputs"]),
        limits=_limits(picture["limits"]),
    )


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
            return ["call", given.function, values.dumps(given.args).decode()]
        case Asserts():
            return ["asserts", given.source, given.entry_point, given.continues]
        case Files():
            return ["files", dict(given.contents)]


def _input_from_json(picture: list[Any]) -> Input:
    match picture:
        case ["stdin", str(text)]:
            return Stdin(text)
        case ["call", str(function), str(arguments)]:
            args = values.loads(arguments.encode())
            if isinstance(args, tuple):
                return Call(function=function, args=args)
        case ["asserts", str(source), entry_point, bool(continues)]:
            return Asserts(source=source, entry_point=entry_point, continues=continues)
        case ["files", dict(contents)]:
            return Files(contents=contents)
    raise ValueError("an unknown input")


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def encode_answer(answer: Answer, secret: bytes) -> bytes:
    """Return a signed answer with executions, in the format of the driver's with frames."""
    head = {
        "identity": answer.identity,
        "programs": [
            {
                "executions": [_execution_to_json(one) for one in outcome.executions],
                "lost": outcome.lost,
                "error": outcome.error,
            }
            for outcome in answer.outcomes
        ],
        "error": answer.error,
    }
    encoded = json.dumps(head).encode("ascii")
    content = len(encoded).to_bytes(4, "little") + encoded
    if len(content) > _WORTH_COMPRESSING:
        content = _PACKED + zlib.compress(content, 1)
    else:
        content = _PLAIN + content
    return _signature(content, secret) + content


def decode_answer(data: bytes, request: Request) -> Answer:
    """Return the answer to a request in the file that a driver left.

    Raises:
        NotAnAnswer: the signature is wrong, or the content cannot be read.
    """
    signature, content = data[:_SIGNATURE], data[_SIGNATURE:]
    if not hmac.compare_digest(signature, _signature(content, request.secret)):
        raise NotAnAnswer("no signed answer")
    try:
        content = _unpacked(content)
        n = int.from_bytes(content[:4], "little")
        head, body = json.loads(content[4 : 4 + n]), memoryview(content)[4 + n :]
        if len(head["programs"]) > len(request.tasks):
            raise ValueError(f"{len(head['programs'])} answers for {len(request.tasks)} programs")
        found = []
        for report, task in zip(head["programs"], request.tasks, strict=False):
            if "frames" in report:
                length = sum(map(sum, report["frames"]))
                found.append(_outcome(report, bytes(body[:length]), task))
                body = body[length:]
            else:
                found.append(_outcome_of_executions(report, task))
        return Answer(identity=str(head["identity"]), outcomes=tuple(found), error=head["error"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, zlib.error) as error:
        raise NotAnAnswer(f"the signed answer cannot be read: {error}") from error


def _signature(content: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(content, key=secret).digest()


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(_PACKED):
        return content[len(_PLAIN) :]
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(content[len(_PACKED) :], _MAX_CONTENT)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {_MAX_CONTENT} bytes")
    return data


def _outcome(report: dict[str, Any], body: bytes, task: Task) -> Outcome:
    """Return the outcome in the zygote's frames, read as `Slot` does."""
    executions: list[Execution] = []
    lost, error = report.get("lost"), None
    at = 0
    try:
        for n_head, n_body in report["frames"]:
            head = json.loads(body[at : at + n_head])
            at += n_head + n_body
            left = len(task.inputs) - len(executions)
            if not left:
                raise ValueError("more answers than inputs")
            if "printed" not in head:
                executions += [_uncompiled(head)] * left
                continue
            ended = outcomes.Ended.read(head, body[at - n_body : at])
            if not ended.was_seen(alone=report["alone"]):
                raise _Lost(f"a test could not be confined: {ended.stderr[-200:]}")
            refusal = ended.refusal if report["alone"] else None
            given = task.inputs[len(executions)]
            executions.append(refusal or outcomes.execution(given, ended, task.limits))
    except (_Lost, OverloadError) as found:
        lost = str(found)
    except DataError as found:
        error = (type(found).__name__, str(found))
    return Outcome(executions=tuple(executions), lost=lost, error=error)


class _Lost(Exception):
    """A frame that reports an infrastructure failure."""


def _uncompiled(head: dict[str, Any]) -> Execution:
    if head.get("done", 0) in (1, -signal.SIGKILL):
        raise _Lost(f"the process of the program ended with {head['done']}")
    return outcomes.syntax_error(head.get("syntax_error", "the compiler crashed"))


def _outcome_of_executions(report: dict[str, Any], task: Task) -> Outcome:
    executions = report["executions"]
    if len(executions) > len(task.inputs):
        raise ValueError(f"{len(executions)} answers for {len(task.inputs)} inputs")
    error = report["error"]
    return Outcome(
        executions=tuple(_execution_from_json(picture, task.limits) for picture in executions),
        lost=report["lost"],
        error=(str(error[0]), str(error[1])) if error else None,
    )


class Budget:
    """The budget after which this project's own server starts no further input, as the driver does."""

    def __init__(self, request: Request) -> None:
        self._until = time.monotonic() + request.budget_s
        self._bytes = 0

    @property
    def is_spent(self) -> bool:
        return time.monotonic() > self._until or self._bytes > MOST_BYTES

    def stop_when(self, task: Task) -> StopWhen:
        """Return the `stop_when` of `Sandbox.run`; it never stops between asserts that share state."""

        def stop(index: int, execution: Execution) -> bool:
            self._bytes += len(execution.stdout) + len(values.dumps(execution.value))
            return self.is_spent and not is_continued(task.inputs, index)

        return stop


def _execution_to_json(execution: Execution) -> list[Any]:
    fields = {**dict(zip(_FIELDS, astuple(execution), strict=True)), "value": None}
    fields["value"] = values.dumps(execution.value).decode()
    return list(fields.values())


_FIELDS = tuple(Execution.__dataclass_fields__)


def _execution_from_json(picture: Sequence[Any], limits: Limits) -> Execution:
    fields = dict(zip(_FIELDS, picture, strict=True))
    fields["status"] = Status(fields["status"])
    fields["value"] = _value(fields["value"], limits)
    return Execution(**fields)


def _value(encoded: str, limits: Limits) -> Plain | Opaque:
    if encoded == "null":
        return None
    return answers.decode(encoded.encode(), 2 * (limits.output_kb << 10) + 1024)
