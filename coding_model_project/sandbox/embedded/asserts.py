"""Trusted tests in their own confined process that call a program in another.

Only data crosses (`crossing`), so nothing the program does to its own process (patched built-ins, objects
that equal everything, an early exit, a forged result) reaches the asserts:

- A name is the program's only if the program defines it and it is not a built-in. The entry point is
  always the program's, whatever its name.
- Modules that the program imported are imported again here.
- Arguments that the program changed in place are changed here only if its call returned None. Otherwise
  `x.clear(); return []` would pass `f(x) == sorted(x)`.
- A value that is not plain data is a `Handle`, equal only to itself. The program answers for its
  attributes, items and methods, never for comparisons.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NoReturn

from coding_model_project.sandbox.embedded import exchange
from coding_model_project.sandbox.embedded.crossing import (
    Oversized,
    Pipe,
    from_picture,
    to_picture,
)

ANSWER, READER, WRITER, REQUESTS = 3, 4, 5, 6
"""Descriptors: the tests' results, the program's answers, requests to it, and the tests (`exchange`)."""

MORE, LAST = b"+", b"."
"""First byte of an answer: more tests may be sent, or not."""

_FILE = "tests.py"
_LINE_CHARS = 500
_NEVER_RAISED = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that would end a loop of the tests, and its asserts, instead of failing them."""


class ProgramFailed(BaseException):
    """The program gave no answer. Not an `Exception`, which tests may expect and catch."""


class Handle:
    """A value that stays in the program's process; its equality, order, hash and truth are ours."""

    __slots__ = ("_caller", "_content")

    def __init__(self, caller: Caller, content: list[Any]) -> None:
        object.__setattr__(self, "_caller", caller)
        object.__setattr__(self, "_content", content)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._caller.ask("call", self, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._caller.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._caller.ask("set", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._caller.ask("item", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._caller.ask("set_item", self, key, value)

    def __len__(self) -> int:
        length = self._caller.ask("length", self)
        if type(length) is not int:
            raise TypeError("a length that is no integer")
        return length

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        iterator = self._caller.ask("iterate", self)
        while True:
            try:
                item = self._caller.ask("next", iterator)
            except _Exhausted:
                return
            yield item

    def __str__(self) -> str:
        text = self._caller.ask("text", self)
        if type(text) is not str:
            raise TypeError("a text that is no string")
        return text

    def __reduce__(self) -> NoReturn:
        raise TypeError("the program's objects cannot be copied")


class _Exhausted(Exception):
    """The end of one of the program's iterators."""


class Caller:
    """A client of the program that treats its answers as data."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.failure: str | None = None
        """Reason for a missing answer; the tests then cannot pass, whatever they caught."""

    def names(self) -> tuple[set[str], set[str]]:
        """Return the names that the program defines: modules that it imported, and all others."""
        with self._failing():
            reply = self._pipe.receive()
            modules, others = ({str(name) for name in reply[key]} for key in ("modules", "others"))
        return modules, others

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Send a request and return the program's answer.

        Raises:
            ProgramFailed: it gave none.
            TypeError, ValueError: an argument cannot be sent.
            Exception: the program's exception, as the nearest built-in one with its text and arguments.
        """
        request = [operation, to_picture(arguments, _refer)]
        with self._failing():
            self._pipe.send(request)
            reply = self._pipe.receive()
            if "error" in reply:
                kind, name, text, picture = reply["error"]
                known = (text,) if picture is None else from_picture(picture, self._resolve)
                value, raised = None, _error(operation, str(kind), str(name), str(text), known)
            else:
                value, raised = from_picture(reply["value"], self._resolve), None
                if value is None and operation == "call":
                    changed = from_picture(reply["arguments"], self._resolve)
                    _restore(list(arguments[1:]), list(changed))
        if raised is not None:
            raise raised
        return value

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Record any exception in the context as the program's failure, and raise ProgramFailed."""
        try:
            yield
        except Exception as error:
            if isinstance(error, Oversized):
                self.failure = "output"
            elif isinstance(error, MemoryError):
                self.failure = "memory"
            else:
                self.failure = "raised"
            raise ProgramFailed("the program ended or sent what is no answer") from error

    def _resolve(self, content: Any) -> Handle:
        number, name = content
        if type(number) is not int or type(name) is not str:
            raise ValueError("no handle")
        return Handle(self, [number, name])


def _refer(value: Any) -> list[Any]:
    if type(value) is not Handle:
        raise TypeError(
            f"a {type(value).__name__} cannot be passed to a program in its own process"
        )
    return value._content


def _restore(ours: Any, theirs: Any) -> None:
    """Change our containers, at every depth, to their new content in the program."""
    if type(ours) is not type(theirs):
        return
    if isinstance(ours, (list, tuple)) and len(ours) == len(theirs):
        for index, (before, after) in enumerate(zip(ours, theirs, strict=True)):
            if not _restored(before, after) and isinstance(ours, list):
                ours[index] = after
    elif isinstance(ours, list):
        ours[:] = theirs
    elif isinstance(ours, dict):
        merged = {
            key: ours[key] if key in ours and _restored(ours[key], after) else after
            for key, after in theirs.items()
        }
        ours.clear()
        ours.update(merged)
    elif isinstance(ours, set):
        ours.clear()
        ours.update(theirs)


def _restored(before: Any, after: Any) -> bool:
    """Restore one of our values; return whether it can stay in its place."""
    if type(before) is not type(after):
        return False
    if isinstance(before, Handle):
        return before._content[0] == after._content[0]
    if isinstance(before, (list, dict, set, tuple)):
        _restore(before, after)
        return not isinstance(before, tuple) or before == after
    return False


@lru_cache
def _kind(name: str) -> type[Exception]:
    base: Any = getattr(builtins, name, None)
    if not isinstance(base, type) or not issubclass(base, Exception) or base in _NEVER_RAISED:
        base = RuntimeError
    kind: Any = type(base.__name__, (base,), {"__str__": lambda error: error.text_of_program})
    return kind


def _error(operation: str, kind: str, name: str, text: str, arguments: Any) -> Exception:
    """Return an exception for the tests.

    Args:
        kind: the built-in exception that it becomes.
        name: the name of the program's own.
        text: its `str`, which the program may define.
    """
    if operation == "next" and kind == "StopIteration":
        return _Exhausted()
    error: Any
    try:
        error = _kind(kind)(*arguments)
    except Exception:  # noqa: BLE001 - its constructor takes other arguments, which the program knew
        error = _kind("RuntimeError")(*arguments)
    error.of_program, error.text_of_program = name, text
    return error


# ── running them ──────────────────────────────────────────────────────────────────────────────────


def run(entry_point: str | None, max_bytes: int) -> NoReturn:
    """Run tests in this process as they arrive, and send the outcome of each; ends the process.

    Later tests see the state that earlier ones left in the program and in their own names. Tests pass
    only if every line ran: `{"passed": true}` is sent last of all.

    Args:
        max_bytes: longest answer accepted from the program.
    """
    tests = _Tests(entry_point, Caller(Pipe(READER, WRITER, max_bytes)))
    with contextlib.suppress(BaseException):
        while (source := exchange.receive(REQUESTS)) is not None:
            outcome = json.dumps(tests.outcome(source)).encode()
            if tests.caller.failure is not None:  # the program is gone, or out of step
                exchange.send(ANSWER, LAST + outcome)
                break
            exchange.send(ANSWER, MORE + outcome)
    os._exit(0)


def run_all(sources: list[bytes], entry_point: str | None, max_bytes: int) -> NoReturn:
    """Run tests that are all known in advance, as `run` does; write a line for each when it has run."""
    tests = _Tests(entry_point, Caller(Pipe(READER, WRITER, max_bytes)))
    with contextlib.suppress(BaseException):
        for source in sources:
            os.write(ANSWER, json.dumps(tests.outcome(source)).encode() + b"\n")
            if tests.caller.failure is not None:
                break
    os._exit(0)


class _Tests:
    """Tests of one program, and their namespace."""

    def __init__(self, entry_point: str | None, caller: Caller) -> None:
        self.caller = caller
        self._entry_point = entry_point
        self._namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
        self._defined: tuple[set[str], set[str]] | None = None
        self._candidate: Any = None
        """Handle of the program's function."""
        self._own: set[str] = set()
        """Names that tests have set; from then on they are not the program's."""

    def outcome(self, source: bytes) -> dict[str, Any]:
        """Run tests and return their outcome, ready for JSON."""
        try:
            return self._outcome(source)
        except BaseException as error:  # noqa: BLE001 - such as no memory left for more detail
            return {"failed": "raised", "line": type(error).__name__}

    def _outcome(self, source: bytes) -> dict[str, Any]:
        try:
            code = compile(source, _FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            return {"failed": "data", "line": _text(error)}
        try:
            self._run(code, _set_in(source))
            outcome: dict[str, Any] = {"passed": True}
        except MemoryError as error:
            outcome = {"failed": "memory", "line": _line(error, source)}
        except AssertionError as error:
            kind = "raised" if getattr(error, "of_program", False) else "assertion"
            outcome = {"failed": kind, "line": _line(error, source)}
        except BaseException as error:  # noqa: BLE001 - the tests' own exit is not a pass either
            outcome = {"failed": "raised", "line": f"{_line(error, source)} {_text(error)}".strip()}
        if self.caller.failure is not None:
            return {"line": "", **outcome, "passed": False, "failed": self.caller.failure}
        return outcome

    def _run(self, code: types.CodeType, sets: set[str]) -> None:
        if self._defined is None:
            self._defined = self.caller.names()
        modules, others = self._defined
        namespace, entry_point = self._namespace, self._entry_point
        used = _names_in(code) - set(dir(builtins)) - {entry_point}
        for name in (used & others) - self._own:  # each time, since the program may change them
            namespace[name] = self.caller.ask("find", name)
        for name in used & modules & set(sys.stdlib_module_names) - self._own:
            namespace[name] = __import__(name)
        if entry_point and self._candidate is None:
            self._candidate = self.caller.ask("find", entry_point)
            namespace[entry_point.rpartition(".")[2]] = namespace["candidate"] = self._candidate
        before = namespace.get("check")
        try:
            exec(code, namespace)
        finally:
            self._own |= sets & namespace.keys()
        check = namespace.get("check")
        if entry_point and isinstance(check, types.FunctionType) and check is not before:
            check(self._candidate)


def _set_in(source: bytes) -> set[str]:
    """Return the names that a source sets in any scope; `ast` is not available wherever this runs."""
    pending: list[Any] = [compile(source, _FILE, "exec", _ONLY_TREE, dont_inherit=True)]
    names: set[str] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif hasattr(node, "_fields"):
            kind = type(node).__name__
            if kind == "Name" and type(node.ctx).__name__ != "Load":
                names.add(node.id)
            elif kind in ("FunctionDef", "AsyncFunctionDef", "ClassDef", "ExceptHandler"):
                names.add(str(node.name))
            elif kind == "alias":
                names.add((node.asname or node.name).partition(".")[0])
            pending += [getattr(node, field, None) for field in node._fields]
    return names


_ONLY_TREE = 0x400
"""`ast.PyCF_ONLY_AST`."""


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _line(error: BaseException, source: bytes) -> str:
    """Return the failed line of the tests."""
    number, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            number = trace.tb_lineno
        trace = trace.tb_next
    lines = source.decode("utf-8", "replace").splitlines()
    if not 0 < number <= len(lines):
        return ""
    return f"line {number}: {lines[number - 1].strip()}"[:_LINE_CHARS]


def _text(error: BaseException) -> str:
    return f"{getattr(error, 'of_program', type(error).__name__)}: {error}"[:_LINE_CHARS]
