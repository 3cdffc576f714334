"""The program's side of tests that call it: it answers requests, one at a time, in its own process.

The program may rewrite all of this. `asserts` trusts nothing here and treats each answer as data.
"""

from __future__ import annotations

import json
import operator
import os
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from coding_model_project.sandbox.embedded.crossing import (
    BINARY,
    UNARY,
    Pipe,
    found,
    from_picture,
    is_data,
    name_of,
    python_class,
    rebuilt,
    restore,
    to_picture,
)

_MAX_NAMES = 2000
_MOST_SAID = 1 << 16
"""Characters of an exception's text, and of its encoded arguments, that the tests get."""

_LONGEST_CHAIN = 8
"""Causes of an exception, and causes of these, that the tests get."""

_ORIGIN = "_of_the_tests"
"""Attribute of an exception that a function of the tests raised: its number."""


def _call(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return function(*arguments, **keywords)


def _special(target: Any, name: str, *arguments: Any) -> Any:
    known = BINARY.get(name) or UNARY.get(name)
    return known(target, *arguments) if known else getattr(target, name)(*arguments)


def _copied(value: Any, deep: bool) -> Any:
    import copy  # lazily, so that a driver starts sooner

    return copy.deepcopy(value) if deep else copy.copy(value)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "get": getattr,
    "set": setattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "special": _special,
    "copy": _copied,
}


def find(module: Any, name: str) -> Any:
    """Return a free function, `Class.method`, `Class().method`, or else a method of `Solution`.

    Raises:
        NameError: the program defines none of them.
    """
    *owners, last = name.split(".")
    owner = module
    for part in owners:
        owner = getattr(owner, part.removesuffix("()"))
        owner = owner() if isinstance(owner, type) else owner
    if owners or hasattr(module, last):
        return getattr(owner, last)
    if hasattr(module, "Solution"):
        return getattr(module.Solution(), last)
    raise NameError(f"the program defines no {last}")


def serve(module: types.ModuleType, reader: int, writer: int) -> None:
    """Send the names that the module defines, then answer requests until the tests end."""
    pipe = Pipe(reader, writer)
    program = _Program(module, pipe)
    pipe.send(_names(module))
    while True:
        try:
            request = pipe.receive()
        except EOFError:
            return
        pipe.send(program.answer(request))


def _names(module: types.ModuleType) -> dict[str, list[str]]:
    """Return the names that the program defines, imported modules apart."""
    names: dict[str, list[str]] = {"modules": [], "others": []}
    for name, value in list(module.__dict__.items())[:_MAX_NAMES]:
        if not name.startswith("__"):
            names["modules" if isinstance(value, types.ModuleType) else "others"].append(name)
    return names


class _Program:
    """The program's objects that tests refer to, and the tests' objects that it has."""

    def __init__(self, module: types.ModuleType, pipe: Pipe) -> None:
        self._module, self._pipe = module, pipe
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        """Places in `_kept` by the object's id."""
        self._named: set[type] = set()
        """Classes that the tests name. Their objects stay here, even those derived from plain data."""
        self._described: set[int] = set()
        self._given: dict[int, Any] = {}
        self._loop: Any = None

    def answer(self, request: list[Any]) -> dict[str, Any]:
        """Do what the tests ask for, and return their answer."""
        operation, picture, wants_changes, wants_print = request
        printed = self._n_printed() if wants_print else 0
        try:
            arguments = from_picture(picture, self._resolve)
            if operation == "data":
                (value,) = arguments
                answer = {"value": to_picture(value, self._inside(value))}
            else:
                value = self._done(operation, arguments)
                answer = {"value": to_picture(value, self.refer)}
                if operation == "call" and (value is None or wants_changes):
                    answer["arguments"] = to_picture(arguments[1:], self.refer)
        except BaseException as error:
            if isinstance(error, MemoryError):
                raise
            answer = {"error": self._raised(error)}
        with suppress(Exception):
            sys.stdout.flush()  # the program is killed when the tests end
            if wants_print:
                text = os.pread(1, self._n_printed() - printed, printed)
                answer["printed"] = text.decode("utf-8", "replace")
        return answer

    def back(self, operation: str, *arguments: Any) -> Any:
        """Ask the tests to do something with an object of theirs, and return the value."""
        with suppress(Exception):
            sys.stdout.flush()
        request = [operation, to_picture(arguments, self.refer)]
        reply = self._pipe.ask(request, self.answer)
        if "error" in reply:
            raise from_picture(reply["error"], self._resolve)
        if operation == "call":
            restore(arguments[1:], from_picture(reply["arguments"], self._resolve))
        return from_picture(reply["value"], self._resolve)

    def _done(self, operation: str, arguments: Any) -> Any:
        if operation == "find":
            value = find(self._module, *arguments)
            if isinstance(value, type):
                self._named.add(value)
            return value
        if operation == "await":
            if self._loop is None:
                import asyncio

                self._loop = asyncio.new_event_loop()
            return self._loop.run_until_complete(*arguments)
        return _OPERATIONS[operation](*arguments)

    @staticmethod
    def _n_printed() -> int:
        with suppress(Exception):
            sys.stdout.flush()
        return os.fstat(1).st_size

    def _inside(self, whole: Any) -> Callable[[Any, int], Any]:
        return lambda value, depth: None if value is whole else self.refer(value, depth)

    def _resolve(self, tag: str, content: Any) -> Any:
        if tag == "h":
            return self._kept[content]
        if tag == "k":
            __import__(content.partition(".")[0])
            return found(content)
        if tag == "x":
            kind, arguments, number = content
            error = rebuilt(found(kind), from_picture(arguments, self._resolve))
            setattr(error, _ORIGIN, number)
            return error
        if tag == "y":  # an empty array
            import numpy as np

            return np.empty(content[1], content[0])
        number, name, is_object = content
        if number not in self._given:
            self._given[number] = (_GivenObject if is_object else _Given)(self, number, name)
        return self._given[number]

    def refer(self, value: Any, depth: int) -> Any:
        """See `crossing.Refer`."""
        kind = type(value)
        if kind is _Given or kind is _GivenObject:
            return {"r": object.__getattribute__(value, "_number")}
        if isinstance(value, type):
            return self._described_class(value)
        if isinstance(value, BaseException):
            return self._raised(value)
        if is_data(value) and self._named.isdisjoint(kind.__mro__):
            return None
        is_own = kind.__module__ in (self._module.__name__, "__main__")
        return {"h": [self._number(value), self._class(kind) if is_own else kind.__name__[:80]]}

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._kept)
            self._kept.append(value)
        return number

    def _class(self, kind: type) -> list[Any]:
        """Return a class's number, name and bases; the number alone if the tests know the rest."""
        number = self._number(kind)
        if number in self._described:
            return [number]
        self._described.add(number)
        bases = [self._described_class(base) for base in kind.__bases__]
        return [number, kind.__name__[:80], bases, issubclass(kind, _DATA)]

    def _described_class(self, kind: type) -> Any:
        name = name_of(kind)
        return {"k": name} if python_class(name) is kind else {"p": self._class(kind)}

    def _raised(self, error: BaseException, n_left: int = _LONGEST_CHAIN) -> Any:
        """Return an exception's picture: its class, arguments, text, attributes, causes and number."""
        if (number := vars(error).get(_ORIGIN)) is not None:
            return {"r": number}
        kind = type(error)
        described = self._described_class(kind)
        is_python = "k" in described
        try:
            text = str(error)[:_MOST_SAID]
        except Exception:  # noqa: BLE001 - its __str__ is the program's
            text = kind.__name__
        whole: Any = [[text], {}]
        with suppress(Exception):
            made, *arguments = error.__reduce__() if is_python else (None, error.args)
            given = arguments[0] if made in (kind, None) else error.args
            attributes = {k: v for k, v in vars(error).items() if k != _ORIGIN}
            picture = [to_picture(list(given), self.refer), to_picture(attributes, self.refer)]
            if len(json.dumps(picture)) <= _MOST_SAID:
                whole = picture
        causes = [
            None if one is None or not n_left else self._raised(one, n_left - 1)
            for one in (error.__cause__, error.__context__)
        ]
        hides = error.__suppress_context__
        return {"x": [described, whole[0], text, whole[1], *causes, hides, self._number(error)]}


_DATA = (int, float, complex, str, bytes, list, tuple, dict, set, frozenset)


def _asking(operation: str, *first: Any) -> Any:
    """Return a method that asks the tests for an operation on an object of theirs.

    Args:
        first: arguments of the operation before the method's.
    """
    return lambda self, *arguments: self._program.back(operation, self, *first, *arguments)


class _Given:
    """A function, an iterator or another iterable of the tests."""

    __slots__ = ("__dict__", "__name__", "_number", "_program")

    def __init__(self, program: _Program, number: int, name: str) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "__name__", name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._program.back("call", self, arguments, keywords)

    def __bool__(self) -> bool:
        return True

    __iter__ = _asking("special", "__iter__")
    __next__ = _asking("special", "__next__")
    __len__ = _asking("special", "__len__")


class _GivenObject(_Given):
    """An object of a class that the tests define."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.back("get", self, name)

    __setattr__ = _asking("set")
    __getitem__ = _asking("item")
    __setitem__ = _asking("set_item")


for _name in (*BINARY, *UNARY, "__contains__"):
    setattr(_GivenObject, _name, _asking("special", _name))
