"""The program's side of tests that call it: it answers requests, one at a time, in its own process.

The program may rewrite all of this. `asserts` trusts nothing here and treats each answer as data.
"""

from __future__ import annotations

import builtins
import json
import operator
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from coding_model_project.sandbox.embedded.crossing import Pipe, from_picture, to_picture

_MAX_NAMES = 2000
_MOST_SAID = 1 << 16
"""Characters of an exception's text, and of its encoded arguments, that the tests get."""


def _call(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return function(*arguments, **keywords)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "length": len,
    "iterate": iter,
    "next": next,
    "text": str,
}


def find(module: Any, name: str) -> Any:
    """Return a free function, `Class.method`, or else a method of `Solution`.

    Raises:
        NameError: the program defines none of them.
    """
    owner, _, method = name.rpartition(".")
    if owner:
        return getattr(getattr(module, owner)(), method)
    if hasattr(module, name):
        return getattr(module, name)
    if hasattr(module, "Solution"):
        return getattr(module.Solution(), name)
    raise NameError(f"the program defines no {name}")


def serve(module: types.ModuleType, reader: int, writer: int) -> None:
    """Send the names that the module defines, then answer requests until the tests end."""
    pipe = Pipe(reader, writer)
    kept: list[Any] = []

    def refer(value: Any) -> list[Any]:
        kept.append(value)
        return [len(kept) - 1, type(value).__name__[:80]]

    def resolve(content: Any) -> Any:
        return kept[content[0]]

    pipe.send(_names(module))
    while True:
        try:
            operation, picture = pipe.receive()
        except EOFError:
            return
        try:
            arguments = from_picture(picture, resolve)
            if operation == "find":
                value = find(module, *arguments)
            else:
                value = _OPERATIONS[operation](*arguments)
            answer = {"value": to_picture(value, refer)}
            if value is None and operation == "call":
                answer["arguments"] = to_picture(arguments[1:], refer)
        except Exception as error:
            if isinstance(error, MemoryError):
                raise
            answer = {"error": _pictured(error, refer)}
        with suppress(Exception):
            sys.stdout.flush()  # the program is killed when the tests end
        pipe.send(answer)


def _names(module: types.ModuleType) -> dict[str, list[str]]:
    """Return the names that the program defines, imported modules apart."""
    found: dict[str, list[str]] = {"modules": [], "others": []}
    for name, value in list(module.__dict__.items())[:_MAX_NAMES]:
        if not name.startswith("__"):
            found["modules" if isinstance(value, types.ModuleType) else "others"].append(name)
    return found


def _builtin(error: Exception) -> str:
    """Return the name of the nearest built-in exception."""
    for kind in type(error).__mro__:
        if getattr(builtins, kind.__name__, None) is kind:
            return kind.__name__
    return "Exception"


def _pictured(error: Exception, refer: Callable[[Any], Any]) -> list[Any]:
    """Return an exception's nearest built-in kind, its own name, its text and its arguments."""
    name = type(error).__name__[:80]
    try:
        text = str(error)[:_MOST_SAID]
    except Exception:  # noqa: BLE001 - its __str__ is the program's
        text = name
    arguments = None  # then the text is the only one
    with suppress(Exception):
        picture = to_picture(error.args, refer)
        if len(json.dumps(picture)) <= _MOST_SAID:
            arguments = picture
    return [_builtin(error), name, text, arguments]
