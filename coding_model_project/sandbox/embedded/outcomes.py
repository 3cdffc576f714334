"""The host's side of one input: the request to a zygote, and the untrusted outcome that comes back."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coding_model_project import codec
from coding_model_project.errors import DataError, OverloadError
from coding_model_project.sandbox.embedded.frames import Head
from coding_model_project.sandbox.embedded.run_program import OUT_OF_MEMORY
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

UNDECODABLE = Opaque("undecodable")
_CONTAINERS = frozenset((list, tuple, dict, set, frozenset))

encode = codec.dumps


def decode(data: bytes, max_bytes: int) -> Plain | Opaque:
    """Return the value of an answer, or `UNDECODABLE` for anything else; never raises.

    It takes time proportional to the answer's length, and at most about 30 times its memory: an empty set
    is nine bytes of text and 216 of memory.
    """
    if len(data) > max_bytes:
        return UNDECODABLE
    try:
        value = codec.loads(data)
    except ValueError:
        return UNDECODABLE
    return UNDECODABLE if _nests_too_deep(value) else value


def _nests_too_deep(value: Plain | Opaque) -> bool:
    """Return whether a value nests deeper than `codec.dumps` writes; comparing it may overflow."""
    level: list[object] = [value] if type(value) in _CONTAINERS else []
    depth = 0
    while level and depth <= codec.MAX_DEPTH:
        values = [items.values() for items in level if type(items) is dict]
        level = [item for items in (*level, *values) for item in items if type(item) in _CONTAINERS]  # pyrefly: ignore[not-iterable]
        depth += 1
    return bool(level)


def request(given: Input, limits: Limits, *, keep: bool = False) -> tuple[Head, bytes]:
    """Return the frame of one input.

    Args:
        keep: whether its processes are kept, for an input that continues them.
    """
    match given:
        case Stdin():
            return {}, given.text.encode("utf-8", "surrogatepass")
        case Call() if keep or given.continues:
            name = json.dumps(given.function).encode()
            return _kept(given, limits, keep), name + b"\n" + encode(given.args)
        case Call():
            return {"function": given.function}, encode(given.args)
        case Asserts():
            head = {"entry_point": given.entry_point, **_kept(given, limits, keep)}
            return head, given.source.encode()
        case Files():
            texts = [text.encode("utf-8", "surrogatepass") for text in given.contents.values()]
            head = {"arguments": list(given.contents), "sizes": [len(text) for text in texts]}
            return head, b"".join(texts)


def _kept(given: Call | Asserts, limits: Limits, keep: bool) -> Head:
    """Return the head of an input of processes that may answer several (`inputs.Kept`)."""
    within = [limits.cpu_s, limits.wall_s]
    return {"continues": given.continues, "keep": keep, "within": within}


_LONGEST_ALONE = 1 << 16
"""Most bytes of a source that its test's process compiles: the time is negligible."""
_LONGEST_HEAD = 450
"""Most JSON characters of a head for `fork_server`, besides the source's size."""


def comes_alone(program: Program, source: bytes, inputs: Sequence[Input], limits: Limits) -> bool:
    """Return whether a program and its only input may take one process instead of two."""
    if program.files or len(source) > _LONGEST_ALONE or len(inputs) != 1:
        return False
    is_known = isinstance(inputs[0], Stdin | Call)
    return is_known and len(json.dumps(request(fresh(inputs[0]), limits)[0])) <= _LONGEST_HEAD


def continues(given: Input | None) -> bool:
    """Return whether an input needs the processes of the one before it."""
    return isinstance(given, Call | Asserts) and given.continues


def fresh(given: Input) -> Input:
    """Return an input that continues none, such as the only one of a run."""
    if isinstance(given, Call | Asserts) and given.continues:
        return replace(given, continues=False)
    return given


def syntax_error(reason: str) -> Execution:
    return Execution(status=Status.syntax_error, stderr_tail=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The outcome of a test's process."""

    confined: bool
    refused: bool = False
    """The test's own process found that the source does not compile."""
    exit: int
    """Exit code, or minus the number of the signal that ended it."""
    killed: str | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    full: bool = False
    """An output reached its limit."""
    unread: bool = False
    """The process had ended before it took this input: an earlier one ended it."""
    printed: bytes = b""
    answered: bytes = b""
    stderr: str = ""

    def was_seen(self, *, alone: bool) -> bool:
        """Return whether the program caused this end, rather than a failure to confine its process.

        Args:
            alone: whether the program came with its only input and this process compiled it: a source
                may crash the compiler.
        """
        crashed = self.exit < 0 and self.exit != -signal.SIGKILL
        return self.confined or (alone and (self.refused or crashed))

    @property
    def refusal(self) -> Execution | None:
        """The execution of a program that came alone and does not compile; None for all others."""
        if self.confined:
            return None
        return syntax_error(self.stderr if self.refused else "the compiler crashed")

    @classmethod
    def read(cls, head: Head, body: bytes) -> Ended:
        printed, answered = head["printed"], head["printed"] + head["answered"]
        names = ("confined", "exit", "killed", "cpu_s", "wall_s", "full")
        return cls(
            **{name: head[name] for name in names},
            refused=head.get("refused", False),
            unread=head.get("unread", False),
            printed=body[:printed],
            answered=body[printed:answered],
            stderr=body[answered:].decode("utf-8", "replace"),
        )


def execution(given: Input, ended: Ended, limits: Limits) -> Execution:
    """Return the execution of an input.

    Raises:
        DataError: the tests cannot be judged.
        OverloadError: its process got hardly any CPU time.
    """
    answered = ended.answered
    value: Plain | Opaque = None
    status = how_it_ended(ended, limits)
    stderr = ended.stderr
    match given:
        case Call() if status is Status.finished:
            if answered:
                value = decode(answered, limits.output_kb << 10)
            else:
                status, stderr = Status.raised, stderr or "the program ended without an answer"
        case Asserts():
            tested, line = _result_of_tests(answered)
            # A program that raised may only have lost its tests, to whom its answer was too long.
            lost = status is Status.raised and tested in (Status.output_limit, Status.memory_limit)
            if status is Status.finished or lost:
                status = tested
            if status is Status.finished:
                value = True if line is None else line
            else:
                stderr = "\n".join(filter(None, (stderr.rstrip(), line)))
        case _:
            pass
    return Execution(
        status=status,
        stdout=ended.printed.decode("utf-8", "replace"),
        stderr_tail=stderr,
        value=value,
        exit_code=ended.exit if ended.exit >= 0 else None,
        cpu_s=ended.cpu_s,
        wall_s=ended.wall_s,
    )


def _result_of_tests(answered: bytes) -> tuple[Status, str | None]:
    """Return how tests ended, by the answer of their process, and the line that failed; None if they
    passed, which only a complete answer says.

    Raises:
        DataError: the tests cannot be judged.
    """
    try:
        result = json.loads(answered)
    except ValueError:
        result = {"failed": "raised", "line": "the tests ended without a word"}
    if result.get("passed") is True:
        return Status.finished, None
    line = str(result.get("line", ""))
    if result["failed"] == "data":
        raise DataError(f"the tests {line}")
    return _FAILED[result["failed"]], line or "the program gave no answer"


_FAILED = {
    "assertion": Status.finished,
    "raised": Status.raised,
    "memory": Status.memory_limit,
    "output": Status.output_limit,
}


def how_it_ended(ended: Ended, limits: Limits) -> Status:
    """Return the way that a process ended.

    Raises:
        OverloadError: it got hardly any CPU time.
    """
    code = ended.exit
    if ended.killed == "starved":
        waited = f"{ended.cpu_s:.1f} s of CPU time in {ended.wall_s:.0f} s"
        raise OverloadError(f"the machine is too busy: a program got {waited}")
    if ended.killed == "cpu" or ended.cpu_s > limits.cpu_s or code == -signal.SIGXCPU:
        return Status.cpu_timeout
    if ended.full:
        return Status.output_limit
    if ended.killed == "wall":
        return Status.wall_timeout
    if ended.killed == "memory":
        return Status.memory_limit
    if code == OUT_OF_MEMORY and ended.stderr.endswith("MemoryError\n"):
        return Status.memory_limit
    if code == -signal.SIGKILL and ended.killed is None:
        return Status.killed
    if code < 0:  # killed for too many threads, too
        return Status.signalled
    return Status.raised if code else Status.finished
