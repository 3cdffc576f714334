"""Encoding of requests to a driver or to `/run_batch`, and decoding of answers.

A request is JSON: programs, each with its inputs. A driver's answer is a file, signed with a secret that
only host and driver hold: a file from a program, or a truncated one, is not an answer. It has the frames
with which the zygote answered; this project's own server answers with executions. Neither request
contains expected outputs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import signal
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from coding_model_project import codec as values
from coding_model_project.errors import DataError, OverloadError
from coding_model_project.sandbox.embedded import outcomes, zygote
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Files,
    Input,
    Limits,
    Program,
    Status,
    Stdin,
)

_MAX_CONTENT = 256 << 20
"""Most bytes of an unpacked answer: no valid one is longer."""

_PACKED = b"z"
_SIGNATURE = hashlib.blake2b().digest_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A program, its inputs in order, and its limits."""

    program: Program
    inputs: tuple[Input, ...]
    limits: Limits
    pauses: bool = False
    """True if `/run_batch` starts no further input after one that used up a limit."""

    @property
    def longest_s(self) -> float:
        """The most wall seconds until a server may stop: inputs that share their state do not part."""
        longest = length = 1
        for index in range(len(self.inputs) - 1):
            length = length + 1 if is_continued(self.inputs, index) else 1
            longest = max(longest, length)
        return longest * self.limits.wall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Programs to run one after another."""

    tasks: tuple[Task, ...]
    budget_s: float
    """Wall seconds after which no further input is started, except the first."""
    secret: bytes = field(default_factory=lambda: os.urandom(16))
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
    return any(map(outcomes.continues, inputs[index + 1 : index + 2]))


class NotAnAnswer(Exception):
    """Bytes that are not an answer to this request: empty, forged, or truncated."""


# ── requests ──────────────────────────────────────────────────────────────────────────────────────


def for_driver(request: Request) -> dict[str, Any]:
    """Return a request as a driver reads it."""
    return {
        "secret": request.secret.hex(),
        "preload": request.preload,
        "budget_s": request.budget_s,
        "programs": [_for_driver(task) for task in request.tasks],
    }


_KNOWN = (zygote.PRELOAD + zygote.ON_DEMAND).split()
_PRELOADED = tuple(name for name in _KNOWN if not name.startswith("encodings."))
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w., \t]+))", re.M)


def worth_importing(tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return modules that several executions of programs import: importing them once saves time.

    This guesses from the text of lines; a wrong guess costs only time.
    """
    uses = Counter[str]()
    for task in tasks:
        for name in set(_imported(task.program)):
            uses[name] += len(task.inputs)
    return tuple(name for name in _PRELOADED if uses[name] > 1)


def _imported(program: Program) -> Iterator[str]:
    for found in _IMPORT.finditer(program.source):
        for name in (found[1] or found[2]).split(","):
            yield (name.split() or [""])[0]


def _for_driver(task: Task) -> dict[str, Any]:
    """Return a program with the frames of its inputs, as the zygote takes them."""
    program, source = task.program, task.program.source.encode()
    alone = outcomes.comes_alone(program, source, task.inputs, task.limits)
    framed = []
    for number, given in enumerate(task.inputs):
        keep, given = is_continued(task.inputs, number), outcomes.fresh(given) if alone else given
        head, body = outcomes.request(given, task.limits, keep=keep)
        framed.append([head, body.decode("utf-8", "surrogatepass")])
    return {
        **_program_to_json(task),
        "alone": alone,
        "inputs": framed,
    }


def batch(request: Request) -> dict[str, Any]:
    """Return the body of a request to `/run_batch`."""
    return {
        "budget_s": request.budget_s,
        "programs": [
            {
                **_program_to_json(task),
                "inputs": list(map(_input_to_json, task.inputs)),
                **({"pauses": True} if task.pauses else {}),
            }
            for task in request.tasks
        ],
    }


def _program_to_json(task: Task) -> dict[str, Any]:
    files = task.program.files.items()
    return {
        "source": task.program.source,
        "language": task.program.language,
        "files": {name: base64.b64encode(data).decode() for name, data in files},
        "limits": asdict(task.limits),
    }


def _input_to_json(given: Input) -> list[Any]:
    match given:
        case Stdin():
            return ["stdin", given.text]
        case Call():
            call = ["call", given.function, values.dumps(given.args).decode()]
            return [*call, True] if given.continues else call
        case Asserts():
            return ["asserts", given.source, given.entry_point, given.continues]
        case Files():
            return ["files", dict(given.contents)]


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


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
            length = sum(map(sum, report["frames"]))
            found.append(_outcome(report, bytes(body[:length]), task))
            body = body[length:]
        return Answer(identity=str(head["identity"]), outcomes=tuple(found), error=head["error"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, zlib.error) as error:
        raise NotAnAnswer(f"the signed answer cannot be read: {error}") from error


def _signature(content: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(content, key=secret).digest()


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(_PACKED):
        return content[1:]
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(content[len(_PACKED) :], _MAX_CONTENT)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {_MAX_CONTENT} bytes")
    return data


def _outcome(report: dict[str, Any], body: bytes, task: Task) -> Outcome:
    """Return the outcome in the zygote's frames, read as `Slot` does."""
    executions: list[Execution] = []
    lost, error = report.get("lost"), None
    try:
        for one in executions_of(_frames(report, body), task, alone=report["alone"]):
            executions.append(one)  # noqa: PERF402 - those before an exception count
    except (Unseen, OverloadError) as found:
        lost = str(found)
    except DataError as found:
        error = (type(found).__name__, str(found))
    return Outcome(executions=tuple(executions), lost=lost, error=error)


def _frames(report: dict[str, Any], body: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    for n_head, n_body in report["frames"]:
        yield body[at : at + n_head], body[at + n_head : at + n_head + n_body]
        at += n_head + n_body


class Unseen(Exception):
    """A frame that reports an infrastructure failure."""


def executions_of(
    frames: Iterable[tuple[bytes, bytes]], task: Task, *, alone: bool = False
) -> Iterator[Execution]:
    """Yield the executions in the zygote's frames, read as `Slot` does.

    Args:
        frames: the head and body of each.
        alone: whether the program came with its only input.

    Raises:
        Unseen: the process of a program ended, or a test could not be confined.
        OverloadError: the machine is too busy.
        DataError: the tests cannot be judged.
        ValueError: there are more frames than inputs.
    """
    n = 0
    for encoded, body in frames:
        head, left = json.loads(encoded), len(task.inputs) - n
        if not left:
            raise ValueError("more answers than inputs")
        if "printed" not in head:
            yield from [_uncompiled(head)] * left
            n += left
            continue
        ended = outcomes.Ended.read(head, body)
        if not ended.was_seen(alone=alone):
            raise Unseen(f"a test could not be confined: {ended.stderr[-200:]}")
        refusal = ended.refusal if alone else None
        yield refusal or outcomes.execution(task.inputs[n], ended, task.limits)
        n += 1


def _uncompiled(head: dict[str, Any]) -> Execution:
    if head.get("done", 0) in (1, -signal.SIGKILL):
        raise Unseen(f"the process of the program ended with {head['done']}")
    return outcomes.syntax_error(head.get("syntax_error", "the compiler crashed"))


# ── /run_batch ────────────────────────────────────────────────────────────────────────────────────


def decode_batch(data: bytes, request: Request) -> Answer:
    """Return the answer of `/run_batch` to a request.

    Raises:
        NotAnAnswer: it is none.
    """
    try:
        content = json.loads(data)
        reports = content["programs"]
        if len(reports) > len(request.tasks):
            raise ValueError(f"{len(reports)} answers for {len(request.tasks)} programs")
        outcomes = map(_outcome_of_executions, reports, request.tasks)
        return Answer(identity=str(content["identity"]), outcomes=tuple(outcomes))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise NotAnAnswer(f"{data[:80]!r} ({type(error).__name__}: {error})") from error


def _outcome_of_executions(report: dict[str, Any], task: Task) -> Outcome:
    found = report["executions"]
    if len(found) > len(task.inputs):
        raise ValueError(f"{len(found)} executions for {len(task.inputs)} inputs")
    error = report["error"]
    return Outcome(
        executions=tuple(_execution(fields, task.limits) for fields in found),
        lost=report["lost"],
        error=(str(error[0]), str(error[1])) if error else None,
    )


def _execution(fields: dict[str, Any], limits: Limits) -> Execution:
    encoded = fields["value"].encode()
    value = outcomes.decode(encoded, 2 * (limits.output_kb << 10) + 1024)
    return Execution(**fields | {"status": Status(fields["status"]), "value": value})
