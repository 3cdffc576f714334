"""Whether calls of a program could leave anything to one another.

Where they cannot, several in one process answer what each would answer in a process of its own. Told by
the source alone, and cautiously: what is not known to be harmless is not. A program that hides its state
from this only changes its own answers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_MODULES = frozenset(
    """
    __future__ abc base64 bisect cmath collections collections.abc copy dataclasses datetime
    fractions functools hashlib heapq itertools json math numbers operator re statistics string
    struct textwrap typing unicodedata
    """.split()  # noqa: SIM905 - as in `zygote`
)
"""Modules without a state that their own functions change, but for caches."""

_NAMES = frozenset(
    """
    __import__ breakpoint compile delattr eval exec exit getattr globals input locals open quit
    setattr vars
    """.split()  # noqa: SIM905
)
"""Built-in functions that reach a state past its name."""

_ATTRIBUTES = frozenset({"register", "sys", "_sys"})
"""Of those modules, what does."""


def is_stateless(source: bytes) -> bool:
    """Whether its module holds nothing that a call could change: functions, classes of functions, and
    constants, with no way to set a global name or an attribute of what outlives the call.

    Args:
        source: a program that compiles.
    """
    try:
        body = [one for one in ast.parse(source).body if not _is_of_scripts(one)]
        classes = [n.name for one in body for n in ast.walk(one) if isinstance(n, ast.ClassDef)]
        _Search(classes).visit_all(body)
        return all(map(_is_harmless, body))
    except _MayKeepState:
        return False
    except Exception:  # noqa: BLE001 - a source that is too much for this is no failure of ours
        return False


def _is_of_scripts(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, which a module whose functions are called is not."""
    match statement:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value="__main__")],
            ),
            orelse=[],
        ):
            return True
        case _:
            return False


# ── what a module or a class holds ────────────────────────────────────────────────────────────────


def _is_harmless(statement: ast.stmt) -> bool:
    """Whether a module's or a class's statement leaves nothing behind that can change."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True  # `_Search` looks at what is imported
        case ast.FunctionDef(args=arguments, decorator_list=decorators):
            return all(map(_is_of_method, decorators)) and _has_constant_defaults(arguments)
        case ast.ClassDef(decorator_list=[], keywords=[], body=body):
            return all(map(_is_harmless, body))
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _is_constant(value)
        case ast.Expr(value=value):
            return _is_constant(value)
        case _:
            return False


def _is_of_method(decorator: ast.expr) -> bool:
    kinds = ("staticmethod", "classmethod", "property")
    return isinstance(decorator, ast.Name) and decorator.id in kinds


def _has_constant_defaults(arguments: ast.arguments) -> bool:
    defaults = [*arguments.defaults, *arguments.kw_defaults]
    return all(default is None or _is_constant(default) for default in defaults)


def _is_constant(value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return True
        case ast.Tuple(elts=items):
            return all(map(_is_constant, items))
        case ast.UnaryOp(operand=operand):
            return _is_constant(operand)
        case ast.BinOp(left=left, right=right):
            return _is_constant(left) and _is_constant(right)
        case ast.Lambda(args=arguments):
            return _has_constant_defaults(arguments)
        case ast.Call(func=ast.Name(id="int" | "float"), args=[ast.Constant()], keywords=[]):
            return True
        case _:
            return False


# ── what its functions do ─────────────────────────────────────────────────────────────────────────


class _MayKeepState(Exception):
    """What was found may change something that outlives a call."""


class _Search(ast.NodeVisitor):
    """Raises `_MayKeepState` at whatever does not belong into a program without a state.

    Attributes may be set of `self` in methods only, and only if no class is ever passed as a value,
    since it could be passed as `self`.
    """

    def __init__(self, classes: Iterable[str]) -> None:
        self._classes = frozenset(classes)
        self._in_class = self._has_self = False

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        raise _MayKeepState

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _NAMES or node.id.startswith("__") or node.id in self._classes:
            raise _MayKeepState

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("__") or node.attr in _ATTRIBUTES:
            raise _MayKeepState
        of_self = isinstance(node.value, ast.Name) and node.value.id == "self" and self._has_self
        if not (isinstance(node.ctx, ast.Load) or of_self):
            raise _MayKeepState
        self._visit_unless_class(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self._visit_initialiser_or(node.func)
        is_asking = isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass")
        if is_asking and len(node.args) == 2:
            self._visit_unless_class(node.args[1])
            self.visit(node.args[0])
        else:
            self.visit_all(node.args)
        self.visit_all(node.keywords)

    def visit_Raise(self, node: ast.Raise) -> None:
        for one in (node.exc, node.cause):
            if one is not None:
                self._visit_unless_class(one)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self._visit_unless_class(node.type)
        self.visit_all(node.body)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self._visit_unless_class(node.cls)
        self.visit_all([*node.patterns, *node.kwd_patterns])

    def visit_Import(self, node: ast.Import) -> None:
        if not all(alias.name in _MODULES for alias in node.names):
            raise _MayKeepState

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module not in _MODULES or any(one.name in _ATTRIBUTES for one in node.names):
            raise _MayKeepState

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        _refuse_calls(node.bases)
        self.visit_all([*node.keywords, *node.decorator_list])
        before, self._in_class, self._has_self = (self._in_class, self._has_self), True, False
        self.visit_all(node.body)
        self._in_class, self._has_self = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        _refuse_calls([one.annotation for one in every] + [node.returns])
        self.visit_all([*arguments.defaults, *arguments.kw_defaults, *node.decorator_list])
        before = self._in_class, self._has_self
        names = [one.arg for one in every]
        if self._in_class:
            of_object = all(getattr(one, "id", "") == "property" for one in node.decorator_list)
            self._has_self = of_object and names[:1] == ["self"]
        elif "self" in names:
            self._has_self = False
        self._in_class = False
        self.visit_all(node.body)
        self._in_class, self._has_self = before

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        _refuse_calls([node.annotation])
        self.visit_all([node.target, node.value])

    def _visit_unless_class(self, node: ast.expr) -> None:
        """A class in a place where nothing can be done to it."""
        if not (isinstance(node, ast.Name) and node.id in self._classes):
            self.visit(node)

    def _visit_initialiser_or(self, function: ast.expr) -> None:
        """What is called: `super().__init__` too."""
        match function:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
                return
            case _:
                self._visit_unless_class(function)


def _refuse_calls(nodes: Iterable[ast.AST | None]) -> None:
    """In annotations and bases, where a class may stand."""
    for node in nodes:
        for one in ast.walk(node) if node is not None else ():
            if isinstance(one, ast.Call | ast.NamedExpr):
                raise _MayKeepState
