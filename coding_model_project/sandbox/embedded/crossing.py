"""The encoding between trusted tests and an untrusted program: values, references and frames.

It is `coding_model_project.codec`'s with more tags:

    {"l": ["module.Name", arguments, items, pairs]}  a value of a class in `LIBRARY`, rebuilt by its class
    {"n": ["Name", [field…], [value…]]}              a named tuple
    {"y": [dtype, shape, [item…]]}                   a numpy array of numbers, booleans or text
    {"k": "module.Name"}                             a class or function of Python itself

All others are references, whose meaning each side defines. Decoding builds values of these classes only:
it calls their constructors with decoded values, and nothing of the other side.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from coding_model_project import codec
from coding_model_project.sandbox.embedded import frames

_TAGS: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}

_OF_CODEC = "ifbc"

_LIBRARY = """
builtins.bytearray builtins.range builtins.slice array.array decimal.Decimal fractions.Fraction
datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone
collections.deque collections.OrderedDict collections.Counter collections.defaultdict
uuid.UUID zoneinfo.ZoneInfo
pathlib.PosixPath pathlib.PurePosixPath ipaddress.IPv4Address ipaddress.IPv6Address
"""
LIBRARY = frozenset(_LIBRARY.split())
"""Classes of the standard library whose values cross. They are rebuilt from what pickling them needs."""

_PLAIN = frozenset(
    f"builtins.{kind.__name__}"
    for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, object)
)
_WITH_ERRORS = """
builtins json decimal _decimal queue _queue struct re sre_constants statistics dataclasses csv
_csv copy zlib binascii zipfile configparser argparse getopt ipaddress zoneinfo graphlib pickle
_pickle socket ssl sqlite3 urllib http email xml subprocess shutil tarfile locale calendar
"""
_ERRORS_OF = frozenset(_WITH_ERRORS.split())
"""Modules whose exceptions cross. Those of test frameworks do not: some of them end a test as passed."""


class Pipe:
    """One end of a pair of pipes that sends and receives frames in turn.

    Args:
        max_bytes: longest frame that it reads, of a writer that is not trusted.
    """

    def __init__(self, reader: int, writer: int, max_bytes: float = math.inf) -> None:
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes

    def send(self, picture: Any) -> None:
        """Send a picture of `to_picture`.

        Raises:
            OSError: the other side is gone.
        """
        frames.send_message(self._writer, json.dumps(picture).encode("ascii"))

    def receive(self) -> Any:
        """Return the next frame's picture, for `from_picture`.

        Raises:
            EOFError: the other side is gone.
            frames.Oversized: the frame is too long; the pipe is then unusable.
            ValueError, RecursionError: the frame is not JSON.
        """
        if (message := frames.next_message(self._reader, self._max_bytes)) is None:
            raise EOFError("the other side closed")
        return json.loads(message)

    def ask(self, request: list[Any], answer: Callable[[list[Any]], dict[str, Any]]) -> Any:
        """Send a request, and answer those of the other side until its reply to this one comes.

        Raises as `send` and `receive` do.
        """
        self.send(request)
        while type(reply := self.receive()) is list:
            self.send(answer(reply))
        return reply


Refer: TypeAlias = "Callable[[Any, int], Any]"
"""A function (value, depth) → the picture of a reference; None for a value that may cross as data."""


def to_picture(value: Any, refer: Refer, depth: int = 0) -> Any:
    """Return a JSON-able picture of a value.

    Args:
        refer: called for all but exact plain data and `LIBRARY`'s values; may raise.

    Raises:
        ValueError: the value nests too deep.
    """

    def inside(items: Iterable[Any]) -> list[Any]:
        return [to_picture(item, refer, depth + 1) for item in items]

    if depth > codec.MAX_DEPTH:
        raise ValueError("the value nests too deep")
    kind = type(value)
    if kind in (int, str, float, bool, bytes, complex) or value is None:
        return codec.to_json(value)
    if kind is list:
        return inside(value)
    if kind is dict:
        return {"d": [inside(pair) for pair in list(value.items())]}
    if kind in _TAGS:
        return {_TAGS[kind]: inside(value)}
    if (name := name_of(kind)) in LIBRARY and _has_known_zone(value):
        return {"l": [name, *map(inside, _parts(value, kind))]}
    if kind.__module__ == "numpy" and (array := _array(value)) is not None:
        return array
    if (reference := refer(value, depth + 1)) is not None:
        return reference
    if isinstance(value, tuple) and (fields := getattr(kind, "_fields", None)):
        return {"n": [kind.__name__, list(fields), inside(tuple.__iter__(value))]}
    if isinstance(value, dict):
        return {"d": [inside(pair) for pair in list(dict.items(value))]}
    for base, tag in ((list, ""), *_TAGS.items()):
        if isinstance(value, base):
            items = inside(base.__iter__(value))
            return {tag: items} if tag else items
    return codec.to_json(value)


def _has_known_zone(value: Any) -> bool:
    zone = getattr(value, "tzinfo", None)
    return zone is None or name_of(type(zone)) in LIBRARY


def is_data(value: Any) -> bool:
    """Return whether a value's class derives from one of plain data."""
    return isinstance(value, (int, float, complex, str, bytes, list, tuple, dict, set, frozenset))


def name_of(value: Any) -> str:
    """Return the full name of a class or function, which need not be true."""
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"


def named(value: Any) -> str | None:
    """Return the full name of a class or function of Python itself; None for any other value."""
    module = getattr(value, "__module__", None)
    module = getattr(getattr(value, "__objclass__", None), "__module__", module)
    name = f"{module}.{getattr(value, '__qualname__', '')}"
    if str(module).partition(".")[0] not in sys.stdlib_module_names or found(name) is not value:
        return None
    return name


def python_class(name: Any) -> Any:
    """Return a class that both sides have: of plain data, of `LIBRARY`, or an exception; else None."""
    if type(name) is not str:
        return None
    if name in _PLAIN or name in LIBRARY:
        __import__(name.rpartition(".")[0])
        return found(name)
    kind = found(name) if name.partition(".")[0] in _ERRORS_OF else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else None


def found(name: str) -> Any:
    """Return what has this full name in a loaded module; None without it."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (module := sys.modules.get(".".join(parts[:end]))) is not None:
            return functools.reduce(lambda at, part: getattr(at, part, None), parts[end:], module)
    return None


def _parts(value: Any, kind: Any) -> tuple[Iterable[Any], Iterable[Any], Iterable[Any]]:
    """Return the arguments that rebuild a library's value, the items to append and the pairs to set."""
    made, arguments, *rest = kind.__reduce_ex__(value, 2)
    _, items, pairs = (*rest, None, None, None)[:3]
    arguments = arguments if made is kind else (str(value),)
    return arguments, items or (), pairs or ()


def _array(value: Any) -> Any:
    """Return the picture of a numpy array or scalar; None for other values."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if not kind or kind not in codec.NUMPY_KINDS or value.size == 0:
        return None  # an array without items equals any other: they are broadcast
    if value.ndim == 0:
        return codec.to_json(value)
    items = [codec.to_json(item) for item in value.ravel().tolist()]
    return {"y": [value.dtype.str, list(value.shape), items]}


def from_picture(picture: Any, resolve: Callable[[str, Any], Any]) -> Any:
    """Return the value of a picture of `to_picture`.

    Args:
        resolve: returns the value of a reference, and of a name (tag "k"), which are as untrusted as the
            rest.

    Raises:
        ValueError, TypeError, RecursionError and the like: it is not a picture.
    """

    def inside(items: Any) -> list[Any]:
        return [from_picture(item, resolve) for item in items]

    if isinstance(picture, list):
        return inside(picture)
    if not isinstance(picture, dict):
        return picture
    if len(picture) != 1:
        raise ValueError("an object with other than one key")
    ((tag, content),) = picture.items()
    if tag == "d":
        return dict(map(inside, content))
    if tag == "l":
        return _of_library(*content[:1], *map(inside, content[1:]))
    if tag == "n":
        name, fields, values = content
        return tuple_kind(str(name), *map(str, fields))._make(inside(values))
    if tag == "y" and content[2]:
        dtype, shape, items = content
        if type(dtype) is not str or dtype[1:2] not in codec.NUMPY_KINDS or not dtype[2:].isdigit():
            raise ValueError(f"an array of {dtype}")
        import numpy as np  # the tests' own import fails where it is missing

        array = np.array(inside(items), dtype=dtype).reshape(inside(shape))
        if array.size != len(items):
            raise ValueError("an array of other things")
        return array
    for base, name in _TAGS.items():
        if tag == name:
            return base(inside(content))
    if tag in _OF_CODEC:
        return codec.from_json(picture)
    return resolve(tag, content)


def _of_library(name: str, arguments: list[Any], items: list[Any], pairs: list[Any]) -> Any:
    if name not in LIBRARY:
        raise ValueError(f"a value of {name}")
    __import__(name.rpartition(".")[0])
    value = found(name)(*arguments)
    for item in items:
        value.append(item)
    for key, item in pairs:
        value[key] = item
    return value


@functools.lru_cache(maxsize=256)
def tuple_kind(name: str, *fields: str) -> Any:
    """Return a class of named tuples; equal ones are the same."""
    return namedtuple(name, fields)


def rebuilt(kind: type[BaseException], arguments: list[Any]) -> BaseException:
    """Return an exception of a class with these arguments, even if its constructor takes others."""
    try:
        return kind(*arguments)
    except Exception:  # noqa: BLE001 - its author's constructor
        error = kind.__new__(kind, *arguments)
        error.args = tuple(arguments)
        return error


def restore(ours: Any, theirs: Any) -> None:
    """Change our containers, at every depth, to the content that they have on the other side."""
    kind: Any = type(ours)
    if kind is not type(theirs):
        return
    if issubclass(kind, (list, tuple)) and len(ours) == len(theirs):
        for index, (before, after) in enumerate(zip(ours, theirs, strict=True)):
            if not _restored(before, after) and issubclass(kind, list):
                ours[index] = after
    elif issubclass(kind, dict):
        merged = {
            key: ours[key] if key in ours and _restored(ours[key], after) else after
            for key, after in theirs.items()
        }
        ours.clear()
        ours.update(merged)
    elif issubclass(kind, set):
        ours.clear()
        ours.update(theirs)
    elif issubclass(kind, list) or name_of(kind) in ("builtins.bytearray", "array.array"):
        ours[:] = theirs
    elif name_of(kind) == "collections.deque":
        ours.clear()
        ours.extend(theirs)
    elif name_of(kind) == "numpy.ndarray" and ours.shape == theirs.shape:
        ours[...] = theirs


def _restored(before: Any, after: Any) -> bool:
    """Restore one of our values; return whether it can stay in its place."""
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    if isinstance(before, (list, dict, set, tuple)) or name_of(type(before)) in _CHANGEABLE:
        restore(before, after)
        return not isinstance(before, tuple) or before == after
    return False


_CHANGEABLE = ("builtins.bytearray", "array.array", "collections.deque", "numpy.ndarray")

BINARY = {
    f"__{name}__": getattr(operator, name)
    for name in (
        *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"),
        *("pow", "matmul", "lshift", "rshift"),
    )
} | {f"__{name}__": getattr(operator, f"{name}_") for name in ("and", "or")}
BINARY["__xor__"] = operator.xor
"""Binary operators by the name of their method."""

UNARY: dict[str, Callable[..., Any]] = {
    "__neg__": operator.neg, "__pos__": operator.pos, "__invert__": operator.invert,
    "__abs__": abs, "__int__": int, "__float__": float, "__hash__": hash, "__len__": len,
    "__str__": str, "__repr__": repr, "__iter__": iter, "__next__": next, "__bool__": bool,
    "__round__": round, "__format__": format, "__reversed__": reversed,
}  # fmt: skip
"""Operations on one object by the name of their method."""
