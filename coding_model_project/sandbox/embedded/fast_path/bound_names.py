"""The names that a program binds, and their meanings: the first half of the proof (`stateless`)."""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Iterable

from coding_model_project.sandbox.embedded.fast_path.allowed import (
    CLASSES,
    REACHING,
    SPECIAL_METHODS,
    TYPES,
    Allowed,
)


class NotProven(Exception):
    """The program uses something that is not on the allow-list."""


class BoundNames(ast.NodeVisitor):
    """All names that a program binds in any scope.

    Raises:
        NotProven: a bound name already has another meaning here: `self`, a class, a module.
    """

    def __init__(self, body: Iterable[ast.stmt], allowed: Allowed) -> None:
        self._allowed = allowed
        self.modules: dict[str, str] = {}
        """Imported modules by their names in the program."""
        self.classes: set[str] = set()
        """Names of the program's own classes, and of `CLASSES`."""
        self.types: set[str] = set()
        """Names of `TYPES`."""
        self.bound: set[str] = set()
        """All other names: functions, parameters, variables, imported names."""
        self.attributes: set[str] = set()
        """Attributes of the program's own instances."""
        self._unlisted: set[str] = set()
        """Names that `from module import *` brings besides the listed ones."""
        self._methods: set[str] = set()
        """Names of methods, which a class's body finds first."""
        self._selves: list[ast.arguments] = []
        """Parameters of methods whose first one is `self`."""
        for statement in body:
            self.visit(statement)
        every = [*self.bound, *self.classes, *self.types, *self.modules]
        if len(set(every)) < len(every) or self.attributes & REACHING:
            raise NotProven
        named = self.classes | self.types | self.modules.keys()
        if (named | self._methods) & frozenset(dir(builtins)) or self._methods & named:
            raise NotProven
        if self._unlisted & {*every, *allowed.builtins}:
            raise NotProven
        if any(name in allowed.reserved or name.startswith("__") for name in every):
            raise NotProven

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name
            known = alias.name in self._allowed.modules or alias.name in TYPES
            if not known or self.modules.setdefault(name, alias.name) != alias.name:
                raise NotProven

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or (module not in self._allowed.modules and module not in TYPES):
            raise NotProven
        for alias in node.names:
            if alias.name == "*":
                self._all_of(module)
            elif alias.name in self._allowed.modules.get(module, ()):
                self.bound.add(alias.asname or alias.name)
            elif alias.name in CLASSES.get(module, ()):
                self.classes.add(alias.asname or alias.name)
            elif alias.name in TYPES.get(module, ()):
                self.types.add(alias.asname or alias.name)
            else:
                raise NotProven

    def _all_of(self, module: str) -> None:
        """Record `from module import *`, which must not change the meaning of a used name."""
        imported = importlib.import_module(module)
        exported = getattr(imported, "__all__", None) or [
            name for name in dir(imported) if not name.startswith("_")
        ]
        listed = self._allowed.modules.get(module, frozenset()), CLASSES.get(module, frozenset())
        self.bound |= listed[0]
        self.classes |= listed[1]
        self.types |= TYPES.get(module, frozenset())
        self._unlisted |= set(exported).difference(*listed, TYPES.get(module, frozenset()))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.add(node.name)
        for one in node.body:
            self.attributes |= _named_by(one)
            if isinstance(one, ast.FunctionDef):
                self._methods.add(one.name)
                if _takes_self(one):
                    self._selves.append(one.args)
                self.generic_visit(one)
            else:
                self.visit(one)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.add(node.name)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        parameters = all_parameters(node)
        if node in self._selves:
            parameters = parameters[1:]
        self.bound |= {parameter.arg for parameter in parameters}
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.attributes.add(node.attr)
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._capture(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._capture(node)

    def _capture(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name is not None:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest is not None:
            self.bound.add(node.rest)
        self.generic_visit(node)


def _named_by(statement: ast.stmt) -> set[str]:
    """Return the attributes that a statement of a class's body defines."""
    match statement:
        case ast.FunctionDef(name=name):
            return set() if name in SPECIAL_METHODS else {name}
        case ast.Assign(targets=targets):
            return {one.id for one in targets if isinstance(one, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def all_parameters(arguments: ast.arguments) -> list[ast.arg]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return every + [one for one in (arguments.vararg, arguments.kwarg) if one is not None]


def _takes_self(method: ast.FunctionDef) -> bool:
    """Return whether a method's first parameter is `self`, and always an instance."""
    first = [*method.args.posonlyargs, *method.args.args][:1]
    is_static = any(getattr(one, "id", "") != "property" for one in method.decorator_list)
    return [one.arg for one in first] == ["self"] and not is_static
