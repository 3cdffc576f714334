"""Trusted tests in a confined process of their own, calling a program that runs in another.

Only data crosses (`crossing`), so nothing the program does to its own process (patched built-ins, objects
that equal everything, an early exit, a forged result) reaches the asserts:

- A name is the program's only if the program defines it and it is not a built-in. The entry point is
  the program's whatever it is called.
- A module the program imported is imported here anew.
- Arguments the program changed in place are changed here only if its call returned None. Else
  `x.clear(); return []` would pass `f(x) == sorted(x)`.
- What is not plain data is a `Handle`, equal to nothing but itself. Its attributes, items and methods are
  asked of the program, comparisons never.
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

from coding_model_project.sandbox.embedded.crossing import (
    Oversized,
    Pipe,
    from_picture,
    to_picture,
)

ANSWER, READER, WRITER = 3, 4, 5
"""Descriptors: what the tests say, the program's answers, and requests to it."""

_FILE = "tests.py"
_LINE_CHARS = 500
_NEVER_RAISED = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Would end a loop of the tests, and with it the asserts in it, instead of failing them."""


class ProgramFailed(BaseException):
    """The program gave no answer. Not an `Exception`: tests that expect one must not take it for it."""


class Handle:
    """A value that stays in the program's process. Equality, order, hash and truth are ours."""

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
    """An iterator of the program has no more items."""


class Caller:
    """Asks the program, and takes its answers for data."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.failure: str | None = None
        """Why an answer did not come; the tests cannot pass then, whatever they caught."""

    def names(self) -> tuple[set[str], set[str]]:
        """What the program defines: modules it imported, and all else."""
        with self._failing():
            said = self._pipe.receive()
            modules, others = ({str(name) for name in said[key]} for key in ("modules", "others"))
        return modules, others

    def ask(self, operation: str, *arguments: Any) -> Any:
        """The program's answer.

        Raises:
            ProgramFailed: it gave none.
            TypeError, ValueError: an argument cannot be sent.
            Exception: what the program raised, as the nearest built-in exception.
        """
        request = [operation, to_picture(arguments, _refer)]
        with self._failing():
            self._pipe.send(request)
            said = self._pipe.receive()
            if "error" in said:
                name, text = map(str, said["error"])
                value, raised = None, _error(operation, name, text)
            else:
                value, raised = from_picture(said["value"], self._resolve), None
                if value is None and operation == "call":
                    changed = from_picture(said["arguments"], self._resolve)
                    _restore(list(arguments[1:]), list(changed))
        if raised is not None:
            raise raised
        return value

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever goes wrong inside is the program's failure."""
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
    """Change our containers, at every depth, to what they became in the program."""
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
    """Whether a value of ours can stay in its place, changed or not."""
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
    kind: Any = type(base.__name__, (base,), {"of_program": True})
    return kind


def _error(operation: str, name: str, text: str) -> Exception:
    if operation == "next" and name == "StopIteration":
        return _Exhausted()
    try:
        return _kind(name)(text)
    except TypeError:  # it takes other arguments, as UnicodeDecodeError does
        return _kind("RuntimeError")(text)


# ── running them ──────────────────────────────────────────────────────────────────────────────────


def run(source: bytes, entry_point: str | None, max_bytes: int) -> NoReturn:
    """Run the tests in this process, write what became of them, and end the process.

    They pass only if every line ran: `{"passed": true}` is written last of all.

    Args:
        max_bytes: longest answer accepted of the program.
    """
    try:
        said = _outcome(source, entry_point, Pipe(READER, WRITER, max_bytes))
    except BaseException as error:  # noqa: BLE001 - e.g. no memory left to say more
        said = {"failed": "raised", "line": type(error).__name__}
    with contextlib.suppress(BaseException):
        os.write(ANSWER, json.dumps(said).encode())
    os._exit(0)


def _outcome(source: bytes, entry_point: str | None, pipe: Pipe) -> dict[str, Any]:
    try:
        code = compile(source, _FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        return {"failed": "data", "line": _text(error)}
    caller = Caller(pipe)
    try:
        _run(code, entry_point, caller)
        said: dict[str, Any] = {"passed": True}
    except MemoryError as error:
        said = {"failed": "memory", "line": _line(error, source)}
    except AssertionError as error:
        kind = "raised" if getattr(error, "of_program", False) else "assertion"
        said = {"failed": kind, "line": _line(error, source)}
    except BaseException as error:  # noqa: BLE001 - the tests' own exit would be no pass either
        said = {"failed": "raised", "line": f"{_line(error, source)} {_text(error)}".strip()}
    if caller.failure is not None:
        return {"line": "", **said, "passed": False, "failed": caller.failure}
    return said


def _run(code: types.CodeType, entry_point: str | None, caller: Caller) -> None:
    namespace: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
    modules, others = caller.names()
    used = _names_in(code) - set(dir(builtins)) - {entry_point}
    for name in used & others:
        namespace[name] = caller.ask("find", name)
    for name in used & modules & set(sys.stdlib_module_names):
        namespace[name] = __import__(name)
    candidate = caller.ask("find", entry_point) if entry_point else None
    if entry_point:
        namespace[entry_point.rpartition(".")[2]] = namespace["candidate"] = candidate
    exec(code, namespace)
    check = namespace.get("check")
    if entry_point and isinstance(check, types.FunctionType):
        check(candidate)


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _line(error: BaseException, source: bytes) -> str:
    """The line of the tests that failed."""
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
    return f"{type(error).__name__}: {error}"[:_LINE_CHARS]
