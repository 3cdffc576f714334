"""Facts about test code, read from its syntax: they depend on the tests alone, never on a program.

`ast` is not available wherever this runs, so nodes are told apart by the names of their classes.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, NamedTuple

_ONLY_TREE = 0x400
"""`ast.PyCF_ONLY_AST`."""

_DEFINITIONS = ("FunctionDef", "AsyncFunctionDef", "ClassDef", "ExceptHandler")

COUNTED, CHANGING = "__counted__", "__changing__"
"""Names of a decorator of `check`, and of a function that makes a call change an argument here too."""


def read(source: bytes, file: str) -> Names:
    """Return the facts about a source.

    Raises:
        SyntaxError, ValueError, RecursionError: it does not compile.
    """
    tree: Any = compile(source, file, "exec", _ONLY_TREE, dont_inherit=True)
    loaded, stored, defined = set[str](), set[str](), set[str]()
    for node in _walk(tree):
        kind = _kind(node)
        if kind == "Name":
            (loaded if _kind(node.ctx) == "Load" else stored).add(node.id)
        elif kind in _DEFINITIONS:
            stored.add(str(node.name))
            if kind != "ExceptHandler":
                defined.add(node.name)
        elif kind == "alias":
            stored.add((node.asname or node.name).partition(".")[0])
    return Names(tree, loaded, stored, defined)


class Names(NamedTuple):
    """The names that test code uses, and its syntax tree."""

    tree: Any
    loaded: set[str]
    stored: set[str]
    """Names that it sets in any scope."""
    defined: set[str]
    """Names of its functions and classes."""

    def refusal(self) -> str | None:
        """Return what the tests do that no separate process can be judged by, as in "replace input"."""
        for node in _walk(self.tree):
            kind = _kind(node)
            if kind == "Assign" and any(map(_is_stdin, node.targets)):
                return "replace sys.stdin, which the program does not share"
            is_own = kind == "Call" and _dotted(node.func).partition(".")[0] in self.defined
            if kind == "Call" and not is_own and _stays_here(node):
                return f"use {_dotted(node.func)}, which does not reach the program's process"
        return None

    def compiled(self, file: str) -> types.CodeType:
        """Return the code of the tests, with calls of `COUNTED` and `CHANGING` added."""
        for node in self.tree.body:
            if _kind(node) == "FunctionDef" and node.name == "check":
                node.decorator_list.insert(0, _expression(COUNTED))
        for call, place in list(self._changes()):
            marked = _expression(f"{CHANGING}(0, {place})")
            marked.args[0], call.func = call.func, marked
        return compile(self.tree, file, "exec", dont_inherit=True)

    def _changes(self) -> Iterator[tuple[Any, int]]:
        """Yield calls whose change of an argument the tests compare with a literal, and its place.

        That is `x = LITERAL`, a statement with `f(x)`, and comparisons of x with literals, in one block
        and with no other use of x: a value that the program changed is then never an expected one.
        """
        for node in _walk(self.tree):
            for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
                for at, start in enumerate(block if isinstance(block, list) else ()):
                    if (name := _set_to_literal(start)) and isinstance(block, list):
                        call, *others = _uses(name, block[at + 1 :]) or [None]
                        if others and all(_compares(other, name) for other in others):
                            yield from _calls_with(name, call)


def _expression(source: str) -> Any:
    tree: Any = compile(source, "tests", "eval", _ONLY_TREE, dont_inherit=True)
    return tree.body


def _set_to_literal(node: Any) -> str | None:
    """Return the variable that an assignment sets to a literal."""
    if _kind(node) != "Assign" or len(node.targets) > 1 or _kind(node.targets[0]) != "Name":
        return None
    return node.targets[0].id if _is_literal(node.value) else None


def _uses(name: str, block: list[Any]) -> list[Any]:
    """Return the statements that use a variable, up to one that sets it anew."""
    uses = []
    for node in block:
        if _set_to_literal(node) == name:
            break
        if any(_kind(one) == "Name" and one.id == name for one in _walk(node)):
            uses.append(node)
    return uses


def _compares(statement: Any, name: str) -> bool:
    """Return whether an assert uses a variable only to compare it with literals."""
    if _kind(statement) not in ("Assert", "Expr"):
        return False
    compared: set[int] = set()
    tested = getattr(statement, "test", statement)
    for node in _walk(tested):
        sides: list[Any] = []
        if _kind(node) == "Compare":
            sides = [node.left, *node.comparators]
        elif _kind(node) == "Call" and _dotted(node.func).startswith("self.assert"):
            sides = node.args[:2]
        for side in sides:
            if all(_is_literal(other) for other in sides if other is not side) and sides[1:]:
                compared |= set(map(id, _walk(side)))
    return all(id(n) in compared for n in _walk(tested) if _kind(n) == "Name" and n.id == name)


def _calls_with(name: str, statement: Any) -> Iterator[tuple[Any, int]]:
    """Yield the call that a variable is an argument of, and its place, if the statement has no more."""
    uses = [one for one in _walk(statement) if _kind(one) == "Name" and one.id == name]
    if len(uses) > 1 or _kind(statement) not in ("Expr", "Assign", "Assert"):
        return
    for call in _walk(statement):
        if _kind(call) == "Call" and not any(_kind(one) == "Starred" for one in call.args):
            yield from ((call, place) for place, one in enumerate(call.args) if one is uses[0])


_HERE = """
patch mock.patch unittest.mock.patch patch.object mock.patch.object patch.dict mock.patch.dict
monkeypatch.setattr redirect_stderr contextlib.redirect_stderr weakref.ref asyncio.iscoroutinefunction
asdict astuple is_dataclass dataclasses.asdict dataclasses.astuple dataclasses.is_dataclass
"""
_STAYS_HERE = frozenset(_HERE.split())
"""Functions that change or look into the tests' process, when the program's is meant."""

_MODULES_HERE = ("inspect", "tempfile", "tracemalloc")
"""Modules whose functions all do, except for `inspect.isclass`."""


def _stays_here(call: Any) -> bool:
    name = _dotted(call.func)
    if name == "open":  # a file of the tests, which the program does not see
        first = call.args[0] if call.args else None
        return not str(getattr(first, "value", "")).startswith("/dev/")
    if name.endswith("catch_warnings"):
        return any(keyword.arg == "record" for keyword in call.keywords)
    is_module = name.partition(".")[0] in _MODULES_HERE and "." in name
    return name in _STAYS_HERE or (is_module and name != "inspect.isclass")


def _walk(node: Any) -> Iterator[Any]:
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif hasattr(node, "_fields"):
            yield node
            pending += [getattr(node, name, None) for name in node._fields]


def _kind(node: Any) -> str:
    return type(node).__name__


def _dotted(node: Any) -> str:
    if _kind(node) == "Attribute":
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if _kind(node) == "Name" else ""


def _is_stdin(node: Any) -> bool:
    return _dotted(node) == "sys.stdin"


def _is_literal(node: Any) -> bool:
    return all(_kind(one) != "Name" for one in _walk(node)) and _kind(node) != "JoinedStr"
