"""Whether calls of a program could leave anything to one another.

Where they cannot, several in one process answer what each would answer in a process of its own. Told by
the source alone, and cautiously: what is not known to be harmless is not. A program that hides its state
from this only changes its own answers.
"""

from __future__ import annotations

import ast

_MODULES = frozenset(
    """
    __future__ abc base64 bisect cmath collections collections.abc copy dataclasses datetime enum
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

_IS_SCRIPT = "__name__ == '__main__'"


def is_stateless(source: bytes) -> bool:
    """Whether its module holds nothing that a call could change: functions, classes of functions, and
    constants, with no way to set a global name or an attribute other than `self`'s.

    Args:
        source: a program that compiles.
    """
    try:
        body = [one for one in ast.parse(source).body if not _is_of_scripts(one)]
        nodes = (node for statement in body for node in ast.walk(statement))
        return all(map(_is_harmless, body)) and all(map(_is_harmless_inside, nodes))
    except (RecursionError, MemoryError):
        return False


def _is_of_scripts(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, which a module whose functions are called is not."""
    return (
        isinstance(statement, ast.If)
        and not statement.orelse
        and ast.unparse(statement.test) == _IS_SCRIPT
    )


def _is_harmless(statement: ast.stmt) -> bool:
    """Whether a module's or a class's statement leaves nothing behind that can change."""
    match statement:
        case ast.Import(names=names):
            return all(alias.name in _MODULES for alias in names)
        case ast.ImportFrom(module=module, level=0):
            return module in _MODULES
        case ast.FunctionDef(args=arguments, decorator_list=decorators):
            return all(map(_is_of_method, decorators)) and _has_constant_defaults(arguments)
        case ast.ClassDef(decorator_list=[], keywords=[], body=body):
            return all(map(_is_harmless, body))
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _is_constant(value)
        case ast.Expr(value=value):
            return _is_constant(value)
        case _:
            return isinstance(statement, ast.Pass)


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


def _is_harmless_inside(node: ast.AST) -> bool:
    """Whether a node may stand anywhere, in functions as well."""
    match node:
        case ast.Global():
            return False
        case ast.Name(id=name):
            return name not in _NAMES and not name.startswith("__")
        case ast.Attribute(value=owner, attr=name, ctx=context):
            if name.startswith("__"):
                return name == "__init__" and isinstance(context, ast.Load)
            return isinstance(context, ast.Load) or _is_self(owner)
        case ast.Import(names=names):
            return all(alias.name in _MODULES for alias in names)
        case ast.ImportFrom(module=module):
            return module in _MODULES
        case _:
            return True


def _is_self(owner: ast.expr) -> bool:
    """Of an object that its class made: none outlives a call, for none is a module's or a class's."""
    return isinstance(owner, ast.Name) and owner.id == "self"
