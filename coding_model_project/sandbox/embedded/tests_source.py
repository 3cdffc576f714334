"""Facts about test code, read from its syntax: they depend on the tests alone, never on a program.

`ast` is not available wherever this runs, so nodes are told apart by the names of their classes.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_ONLY_TREE = 0x400
"""`ast.PyCF_ONLY_AST`."""

_DEFINITIONS = ("FunctionDef", "AsyncFunctionDef", "ClassDef", "ExceptHandler")
_DATA_ATTRIBUTES = frozenset(
    name for kind in (str, bytes, list, tuple, dict, set, int, float, complex) for name in dir(kind)
)


def read(source: bytes, file: str) -> Names:
    """Return the facts about a source.

    Raises:
        SyntaxError, ValueError, RecursionError: it does not compile.
    """
    tree: Any = compile(source, file, "exec", _ONLY_TREE, dont_inherit=True)
    names = Names(tree)
    for node in _walk(tree):
        kind = _kind(node)
        if kind == "Name":
            names.parts.append(node)
            (names.loaded if _kind(node.ctx) == "Load" else names.stored).add(node.id)
        elif kind in _DEFINITIONS:
            names.stored.add(str(node.name))
        elif kind == "alias":
            names.stored.add((node.asname or node.name).partition(".")[0])
    return names


@dataclass
class Names:
    """The names that test code uses, and its syntax tree."""

    tree: Any
    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    """Names that it sets in any scope."""
    parts: list[Any] = field(default_factory=list)
    """The nodes of all names."""

    def refusal(self) -> str | None:
        """Return what the tests do that no separate process can be judged by, as in "replace input"."""
        for node in _walk(self.tree):
            kind = _kind(node)
            if kind == "Assign" and any(map(_is_stdin, node.targets)):
                return "replace sys.stdin, which the program does not share"
            if kind == "Call" and _stays_here(node):
                return f"use {_dotted(node.func)}, which does not reach the program's process"
            if kind in ("BinOp", "Compare") and (name := self._own_operator(node)):
                return f"apply an operator to the program's {name} and to a value of their own"
        return None

    def _own_operator(self, node: Any) -> str | None:
        """Return the class whose object an operator combines with a literal.

        The program's operators would see the literal. An object is one that the tests make of a class
        and that has attributes which plain data has not: a function's value may be anything.
        """
        made = self._made()
        sides = (
            [node.left, node.right] if _kind(node) == "BinOp" else [node.left, *node.comparators]
        )
        if any(_kind(one) in ("Is", "IsNot") for one in getattr(node, "ops", ())):
            return None
        classes = [made.get(side.id) if _kind(side) == "Name" else None for side in sides]
        others = [s for s, kind in zip(sides, classes, strict=True) if kind is None]
        is_mixed = others and len(others) < len(sides) and all(map(_is_literal, others))
        return next(filter(None, classes)) if is_mixed else None

    def _made(self) -> dict[str, str]:
        """Return the variables that hold objects of classes, with the class."""
        if not hasattr(self, "_made_objects"):
            made: dict[str, str] = {}
            used: set[str] = set()
            for node in _walk(self.tree):
                if _kind(node) == "Assign" and _kind(node.value) == "Call":
                    function, (target, *_) = node.value.func, node.targets
                    is_named = _kind(function) == _kind(target) == "Name"
                    if is_named and function.id[:1].isupper() and function.id not in self.stored:
                        made[target.id] = function.id
                elif _kind(node) == "Attribute" and _kind(node.value) == "Name":
                    used |= set() if node.attr in _DATA_ATTRIBUTES else {node.value.id}
            own = {made[name] for name in used & made.keys()}
            self._made_objects = {name: kind for name, kind in made.items() if kind in own}
        return self._made_objects

    def checks_changes(self, of_program: set[str]) -> bool:
        """Return whether all uses of what calls of the program may have changed compare it with values
        that neither the program nor a changed argument has a part in, and there is one.

        Args:
            of_program: names of the program.
        """
        dependent = self._dependent(of_program)
        passed: set[str] = set()
        allowed: set[int] = set()
        calls = [node for node in _walk(self.tree) if _kind(node) == "Call"]
        for call in calls:
            if _used(call.func) & dependent:
                given = [*call.args, *(keyword.value for keyword in call.keywords)]
                passed |= {one.id for one in given if _kind(one) == "Name"}
                allowed |= {id(one) for one in given}
        passed -= dependent
        compared: set[int] = set()
        for sides in self._compared(calls):
            for side in sides:
                others = set().union(*(_used(other) for other in sides if other is not side))
                if not others & (dependent | passed):
                    compared |= {
                        id(n) for n in _walk(side) if _kind(n) == "Name" and n.id in passed
                    }
        uses = [n for n in self.parts if n.id in passed and _kind(n.ctx) == "Load"]
        return any(id(n) in compared for n in uses) and all(
            id(n) in compared or id(n) in allowed for n in uses
        )

    def _compared(self, calls: list[Any]) -> Iterator[list[Any]]:
        """Yield the sides of each comparison: by an operator, or by `assertEqual` and the like."""
        for node in _walk(self.tree):
            if _kind(node) == "Compare":
                yield [node.left, *node.comparators]
        for call in calls:
            if _kind(call.func) == "Attribute" and call.func.attr.startswith("assert"):
                yield call.args[:2]

    def _dependent(self, of_program: set[str]) -> set[str]:
        """Return the names whose values may depend on the program, and parameters of functions."""
        found = set(of_program)
        flows: list[tuple[Any, Any]] = []
        for node in _walk(self.tree):
            match _kind(node):
                case "Assign" | "AugAssign" | "AnnAssign" | "NamedExpr" | "For" | "comprehension":
                    value = node.iter if hasattr(node, "iter") else node.value
                    flows.append((getattr(node, "targets", None) or node.target, value))
                case "withitem":
                    flows.append((node.optional_vars, node.context_expr))
                case "arg":
                    found.add(node.arg)
        size = -1
        while size != len(found):
            size = len(found)
            for targets, value in flows:
                if _used(value) & found:
                    found |= {n.id for n in _walk(targets) if _kind(n) == "Name"}
        return found - set(dir(builtins))


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


def _used(node: Any) -> set[str]:
    return {one.id for one in _walk(node) if _kind(one) == "Name"}


def _dotted(node: Any) -> str:
    if _kind(node) == "Attribute":
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if _kind(node) == "Name" else ""


def _is_stdin(node: Any) -> bool:
    return _dotted(node) == "sys.stdin"


def _is_literal(node: Any) -> bool:
    return all(_kind(one) != "Name" for one in _walk(node)) and _kind(node) != "JoinedStr"
