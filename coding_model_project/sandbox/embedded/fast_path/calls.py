"""Several tests of one program that are calls of its function, answered by one process.

One fork instead of one for each, since a process costs more than what most tests do. All calls are made
of a program without a state (`stateless`), of any other the first. Asserts that compare a call of the
entry point with a literal are calls, too: what they expect stays here, and is compared here. What the
process did not answer is found out by the test on its own, so that what is found is the same; but for
programs that go by the addresses of objects, or recurse to within five frames of the limit.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from coding_model_project import codec
from coding_model_project.sandbox.embedded.answers import decode
from coding_model_project.sandbox.embedded.frames import Head
from coding_model_project.sandbox.embedded.outcomes import Ended, execution, how_it_ended
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Input,
    Limits,
    Opaque,
    Plain,
    Status,
)

_LINE_CHARS = 500
_TAIL = 2000
"""Bytes."""
_OF_THE_FIRST = (Status.finished, Status.raised, Status.signalled)
"""How a process may end that answered the first call alone, for that to be believed."""


@dataclass(frozen=True, slots=True)
class _Assert:
    """`assert f(arguments) == expected`."""

    arguments: tuple[Plain, ...]
    expected: Plain
    line: str


@dataclass(frozen=True, slots=True)
class Calls:
    """Inputs as calls of one function."""

    function: str
    inputs: Sequence[Call | tuple[_Assert, ...]]

    @property
    def pictures(self) -> list[list[Any]]:
        """The arguments of each call, by input, as JSON takes them."""
        return [[codec.to_json(one) for one in group] for group in self.arguments]

    @property
    def arguments(self) -> list[list[tuple[Plain, ...]]]:
        """Of each call, by input."""
        return [
            [given.args] if isinstance(given, Call) else [one.arguments for one in given]
            for given in self.inputs
        ]

    @property
    def request(self) -> tuple[Head, bytes]:
        """The head and body of the frame that asks for them."""
        return {"function": self.function, "calls": True}, json.dumps(self.pictures).encode()


def of(inputs: Sequence[Input]) -> Calls | None:
    """Inputs as calls; None if they are not, or not of one function."""
    names = {_function(given) for given in inputs}
    name = names.pop() if len(names) == 1 else None
    if name is None:
        return None
    found: list[Call | tuple[_Assert, ...]] = []
    for given in inputs:
        if isinstance(given, Asserts):
            asserts = _asserts(given)
            if asserts is None:
                return None
            found.append(asserts)
        elif isinstance(given, Call):
            found.append(given)
    return Calls(name, found)


def _function(given: Input) -> str | None:
    match given:
        case Call():
            return given.function
        case Asserts():
            return given.entry_point
        case _:
            return None


@lru_cache(maxsize=4096)
def _asserts(tests: Asserts) -> tuple[_Assert, ...] | None:
    """All that a source does, if it is nothing else."""
    try:
        body = ast.parse(tests.source.encode()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    name = str(tests.entry_point).rpartition(".")[2]
    found = [_assert(statement, name, tests.source) for statement in body]
    return tuple(one for one in found if one) if found and all(found) else None


def _assert(statement: ast.stmt, name: str, source: str) -> _Assert | None:
    match statement:
        case ast.Assert(
            test=ast.Compare(
                left=ast.Call(func=ast.Name(id=called), args=given, keywords=[]),
                ops=[ast.Eq()],
                comparators=[right],
            ),
            lineno=first,
            end_lineno=last,
            msg=None | ast.Constant(),
        ) if called in (name, "candidate") and first == last:
            pass
        case _:
            return None
    if any(isinstance(node, ast.Set) for one in given for node in ast.walk(one)):
        return None  # its order would be that of this process
    try:
        values: Any = [ast.literal_eval(one) for one in (*given, right)]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if values[-1] is None or codec.loads(codec.dumps(values)) != values:
        return None  # arguments that the program changed would have to come back; no plain data
    line = source.splitlines()[first - 1].strip()
    return _Assert(tuple(values[:-1]), values[-1], f"line {first}: {line}"[:_LINE_CHARS])


def believed(calls: Calls, ended: Ended, limits: Limits) -> list[Execution]:
    """Executions of the first inputs, as many as the process has shown.

    That is the first of a program that may have a state or did not come to answer, else all that it
    answered, but none if it did not end well: which call ended it is not known.
    """
    status, first = how_it_ended(ended, limits), calls.inputs[0]
    if isinstance(first, Call) and not ended.answered.startswith((b"=", b"!")):
        alone = execution(first, ended, limits)
        return [alone] if alone.status in _OF_THE_FIRST else []
    if status is not Status.finished:
        return []
    n = sum(map(len, calls.arguments))
    said = list(islice(_said(ended, limits.output_kb << 10), n))
    if len(said) < n and not isinstance(first, Call):
        return []  # asserts may lean on what the ones before have left: `together` tries them so
    share = Execution(
        status=Status.finished, exit_code=0, cpu_s=ended.cpu_s / n, wall_s=ended.wall_s / n
    )
    left = iter(said)
    executions: list[Execution] = []
    for given in calls.inputs:
        if isinstance(given, Call):
            one = next(left, None)
            found = None if one is None else _of_call(one, share)
        else:
            found = _of_asserts(given, list(islice(left, len(given))), share)
        if found is None:
            break
        executions.append(found)
    return executions


@dataclass(frozen=True, slots=True)
class _Said:
    """What became of one call."""

    printed: str
    value: Plain | Opaque
    raised: str | None


def _said(ended: Ended, max_bytes: int) -> Iterator[_Said]:
    """The lines that `run_program.run_calls` wrote; up to the first that is none."""
    printed = 0
    for line in ended.answered.split(b"\n")[:-1]:
        head, _, encoded = line.partition(b" ")
        if head[:1] not in (b"=", b"!") or not head[1:].isdigit() or len(head) > 20:
            return
        before, printed = printed, int(head[1:])
        if not before <= printed <= len(ended.printed):
            return
        value = decode(encoded, max_bytes)
        text = ended.printed[before:printed].decode("utf-8", "replace")
        if head[:1] == b"=":
            yield _Said(text, value, None)
        elif isinstance(value, str):
            yield _Said(text, None, value)
        else:
            return


def _of_call(said: _Said, share: Execution) -> Execution:
    if said.raised is None:
        return replace(share, stdout=said.printed, value=said.value)
    return replace(
        share,
        status=Status.raised,
        stdout=said.printed,
        exit_code=1,
        stderr_tail=said.raised.encode("utf-8", "replace")[-_TAIL:].decode("utf-8", "replace"),
    )


def _of_asserts(
    asserts: Sequence[_Assert], said: Sequence[_Said], share: Execution
) -> Execution | None:
    """None for what only their own process can tell: an exception, a value that is no plain data."""
    n, printed = len(asserts), ""
    value: bool | str = True
    for index, one in enumerate(asserts):
        holds = _holds(one, said[index]) if index < len(said) else None
        if holds is None:
            return None
        printed += said[index].printed
        if not holds:
            value = one.line
            break
    return replace(
        share, value=value, stdout=printed, cpu_s=share.cpu_s * n, wall_s=share.wall_s * n
    )


def _holds(one: _Assert, said: _Said) -> bool | None:
    """None if that cannot be told here."""
    if said.raised is not None:
        return None
    try:
        if said.value == one.expected:
            return True
        return None if _has_opaque(said.value) else False
    except RecursionError:
        return None


def _has_opaque(value: Plain | Opaque) -> bool:
    if isinstance(value, dict):
        return any(_has_opaque(k) or _has_opaque(v) for k, v in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(_has_opaque, value))
    return isinstance(value, Opaque)
