"""A proof, from the source alone, that the inputs of a program leave no state to one another.

It is an allow-list: unless all statements, names, attributes and imports are known to be harmless, each
input gets its own process. Modules, classes, functions with their defaults, and the values of global
names outlive a call. A script runs in new global names each time, so only modules outlive it. So:

- a module or class holds only functions, classes and constants, and none of its names is set again;
- attributes are set only on `self`, which is always the first parameter of a method: a class is never a
  value, so methods can only be called on instances, which die with their call;
- attributes that are read are methods of plain data, or names that the program gives its own instances;
- modules are used only for the listed names.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Callable, Iterable, Mapping, Sequence

from coding_model_project.sandbox.embedded.fast_path.allowed import (
    CALLS,
    CAUGHT,
    CLASSES,
    SCRIPTS,
    SPECIAL_METHODS,
    TYPES,
    Allowed,
)
from coding_model_project.sandbox.embedded.fast_path.bound_names import (
    BoundNames,
    NotProven,
    all_parameters,
)

MOST_BYTES = 32 << 10
"""Most bytes of a source that is checked."""


def is_stateless(source: bytes) -> bool:
    """Return whether calls of the program's functions provably leave no state to one another.

    Args:
        source: a program that compiles.
    """

    def holds() -> None:
        body = [one for one in ast.parse(source).body if not _is_for_scripts(one)]
        _Proof(body, CALLS).holds_for_module()

    return len(source) <= MOST_BYTES and _is_proven(holds)


def is_stateless_script(source: bytes) -> bool:
    """Return whether runs of the program as a script, each in new global names, leave no state.

    Args:
        source: a program that compiles.
    """

    def holds() -> None:
        _Proof(ast.parse(source).body, SCRIPTS).holds_for_script()

    return len(source) <= MOST_BYTES and _is_proven(holds)


def _is_proven(holds: Callable[[], None]) -> bool:
    try:
        holds()
    except (NotProven, RecursionError, MemoryError):  # the latter two: nests too deep to check
        return False
    return True


def _is_for_scripts(statement: ast.stmt) -> bool:
    """Return whether this is `if __name__ == "__main__":`, which does not run before function calls."""
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


_DECORATORS = ("property", "staticmethod")
"""Allowed decorators of methods; with `classmethod`, a class would be a value."""

_YIELDS = (ast.Yield, ast.YieldFrom)

_PLAIN_STATEMENTS = (
    *(ast.Return, ast.Delete, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If),
    *(ast.Raise, ast.Assert, ast.Nonlocal, ast.Expr, ast.Pass, ast.Break, ast.Continue),
    *(ast.Match, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef),
)
_PLAIN_EXPRESSIONS = (
    *(ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Yield, ast.YieldFrom),
    *(ast.Compare, ast.Call, ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute),
    *(ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice),
)
_PARTS = (
    *(ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.comprehension),
    *(ast.arguments, ast.arg, ast.keyword, ast.alias, ast.match_case, ast.pattern),
)


class _Proof:
    """A checker of each part of a program that raises `NotProven` for parts not on the list."""

    def __init__(self, body: Sequence[ast.stmt], allowed: Allowed) -> None:
        self._body, self._allowed = body, allowed
        self._names = BoundNames(body, allowed)
        self._is_script = False

    def holds_for_module(self) -> None:
        """Check a body that runs once, and whose names outlive a call."""
        for statement in self._body:
            self._held(statement, in_class=False)

    def holds_for_script(self) -> None:
        """Check a body that runs for each input, and whose names die with the run, as a function's do."""
        self._is_script = True
        for statement in self._body:
            self._any(statement)

    def _held(self, statement: ast.stmt, *, in_class: bool) -> None:
        """Check a statement of a module's or a class's body."""
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Import() | ast.ImportFrom() if not in_class:
                pass  # `BoundNames` has checked the imported names
            case ast.FunctionDef(args=arguments, decorator_list=decorators):
                allowed = _DECORATORS if in_class else ()
                if not all(isinstance(d, ast.Name) and d.id in allowed for d in decorators):
                    raise NotProven
                for default in _defaults(arguments):
                    self._constant(default, in_class=in_class)
                self._function(statement)
            case ast.ClassDef() if not in_class:
                self._class(statement)
            case ast.Assign(targets=targets, value=value) if _are_names(targets):
                self._constant(value, in_class=in_class)
            case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=value):
                self._annotation(annotation)
                if value is not None:
                    self._constant(value, in_class=in_class)
            case _:
                raise NotProven

    def _class(self, node: ast.ClassDef) -> None:
        if node.keywords or node.decorator_list or getattr(node, "type_params", ()):
            raise NotProven
        for base in node.bases:
            if not (
                isinstance(base, ast.Name) and base.id == "object" and self._is_builtin("object")
            ):
                raise NotProven
        for statement in node.body:
            match statement:
                case ast.FunctionDef(name=name) if name.startswith("__"):
                    if name not in SPECIAL_METHODS:
                        raise NotProven
                case _:
                    pass
            self._held(statement, in_class=True)

    def _function(self, node: ast.FunctionDef) -> None:
        """Check a function's statements and annotations."""
        if getattr(node, "type_params", ()):
            raise NotProven
        for parameter in all_parameters(node.args):
            self._annotation(parameter.annotation)
        self._annotation(node.returns)
        for statement in node.body:
            self._any(statement)

    def _constant(self, value: ast.expr, *, in_class: bool) -> None:
        """Check a value that no call can change.

        Args:
            in_class: whether names may be those of methods, which must not become functions.
        """
        match value:
            case ast.Constant():
                pass
            case ast.Tuple(elts=items):
                for item in items:
                    self._constant(item, in_class=in_class)
            case ast.UnaryOp(operand=operand):
                self._constant(operand, in_class=in_class)
            case ast.BinOp(left=left, right=right):
                self._constant(left, in_class=in_class)
                self._constant(right, in_class=in_class)
            case ast.Lambda(args=arguments, body=body):
                for default in _defaults(arguments):
                    self._constant(default, in_class=in_class)
                self._any(body)
            case ast.Call(func=ast.Name(id="int" | "float" as name), args=[ast.Constant()]) if (
                not value.keywords and self._is_builtin(name)
            ):
                pass
            case ast.Name(id=name) if name in self._names.bound and not in_class:
                pass  # another constant, or a function
            case ast.Attribute(value=ast.Name()):
                self._module_attribute(value)
            case _:
                raise NotProven

    def _annotation(self, node: ast.expr | None) -> None:
        """Check a type: only names of types, so that none of the program's code runs."""
        for one in ast.walk(node) if node is not None else ():
            match one:
                case ast.Constant() | ast.expr_context() | ast.BitOr() | ast.BinOp():
                    pass
                case ast.Subscript() | ast.Tuple() | ast.List():
                    pass
                case ast.Name(id=name):
                    if not self._is_type(name):
                        raise NotProven
                case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                    if attribute not in TYPES.get(self._names.modules.get(name, ""), ()):
                        raise NotProven
                case _:
                    raise NotProven

    def _is_type(self, name: str) -> bool:
        """Return whether an annotation may use a name."""
        names = self._names
        is_module = names.modules.get(name) in TYPES
        return is_module or name in names.classes | names.types or self._is_builtin(name)

    def _is_builtin(self, name: str) -> bool:
        return name in self._allowed.builtins and name not in self._names.bound

    # ── bodies of functions ───────────────────────────────────────────────────────────────────────

    def _any(self, node: ast.AST) -> None:
        """Check a part of a function, whose values die with the call."""
        match node:
            case ast.Name(id=name):
                if not self._is_known(name):
                    raise NotProven
            case ast.Attribute():
                self._attribute(node)
            case ast.Call():
                self._call(node)
            case ast.Compare(left=left, comparators=others):
                self._comparison([left, *others])
            case ast.Subscript(ctx=ast.Store() | ast.Del(), slice=ast.Slice(step=ast.expr())):
                raise NotProven  # CPython writes out of bounds if the values' iterator empties the list
            case ast.FunctionDef(args=arguments, decorator_list=decorators):
                for one in (*_defaults(arguments), *decorators):
                    self._any(one)
                self._function(node)
            case ast.Global() if self._is_script:
                pass
            case ast.Try():
                self._try(node)
            case ast.ClassDef():
                self._class(node)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._annotation(annotation)
                self._any(target)
                if value is not None:
                    self._any(value)
            case ast.Raise(exc=what, cause=cause):
                for one in (what, cause):
                    self._class_or_any(one)
            case ast.MatchClass(cls=kind):
                self._classes_or_any(kind)
                for one in (*node.patterns, *node.kwd_patterns):
                    self._any(one)
                for name in node.kwd_attrs:
                    self._loaded(name)
            case _ if isinstance(node, (*_PLAIN_STATEMENTS, *_PLAIN_EXPRESSIONS, *_PARTS)):
                for child in ast.iter_child_nodes(node):
                    self._any(child)
            case _:
                raise NotProven

    def _try(self, node: ast.Try) -> None:
        """Check that handlers name the exceptions they catch.

        The depth and size at which a program hits the recursion or memory limit depend on earlier inputs.
        Uncaught, either error ends the process, and the input runs on its own.
        """
        if node.finalbody or any(isinstance(one, _YIELDS) for one in ast.walk(node)):
            raise NotProven  # an error in `finally` hides the limit's; a generator freed late still acts
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            for kind in kinds:
                if not (isinstance(kind, ast.Name) and self._is_caught(kind.id)):
                    raise NotProven
        inner = [part for handler in node.handlers for part in handler.body]
        for statement in (*node.body, *inner, *node.orelse):
            self._any(statement)

    def _is_caught(self, name: str) -> bool:
        return name in CAUGHT and self._is_builtin(name)

    def _is_known(self, name: str) -> bool:
        """Return whether a name may be a value: not a module, a class, or an unlisted name."""
        names = self._names
        if name in names.modules or name in names.classes or name in names.types:
            return False
        is_bound = name in self._names.bound or name == "self"
        return (
            is_bound or name in self._allowed.builtins or (self._is_script and name == "__name__")
        )

    def _attribute(self, node: ast.Attribute) -> None:
        """Check an attribute of a module, of `self`, or of any other value."""
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in self._names.modules:
                self._module_attribute(node)
            case ast.Attribute(value=ast.Name(id="self")):
                self._loaded(node.attr)
            case ast.Attribute(ctx=ast.Load(), attr=attribute) if not attribute.startswith("_"):
                self._loaded(attribute)
                self._any(node.value)
            case _:
                raise NotProven

    def _loaded(self, attribute: str) -> None:
        if (
            attribute.startswith("__")
            or attribute not in self._allowed.methods | self._names.attributes
        ):
            raise NotProven

    def _module_attribute(self, node: ast.Attribute) -> None:
        """Check that an attribute is one of a module's listed values."""
        if not isinstance(node.ctx, ast.Load) or not self._is_of_module(
            node, self._allowed.modules
        ):
            raise NotProven

    def _is_of_module(self, node: ast.Attribute, listed: Mapping[str, frozenset[str]]) -> bool:
        match node.value:
            case ast.Name(id=name):
                return node.attr in listed.get(self._names.modules.get(name, ""), ())
            case _:
                return False

    def _call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, kinds], keywords=[]):
                self._any(value)
                self._classes_or_any(kinds)
                return
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                _check_format(text)
            case _:
                self._class_or_any(node.func)
        for argument in (*node.args, *node.keywords):
            self._any(argument)

    def _comparison(self, sides: Sequence[ast.expr]) -> None:
        """Check a comparison; `type(x)` may only be compared with built-in types."""
        type_calls = [_is_type_call(side) for side in sides]
        for side, is_type_call in zip(sides, type_calls, strict=True):
            if is_type_call and isinstance(side, ast.Call):
                self._any(side.args[0])
            elif any(type_calls):
                items = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
                if not all(isinstance(i, ast.Name) and self._is_builtin(i.id) for i in items):
                    raise NotProven
            else:
                self._any(side)

    def _class_or_any(self, node: ast.expr | None) -> None:
        """Check a place where a class of the program may stand: it is called, raised or type-checked."""
        match node:
            case None:
                pass
            case ast.Name(id=name) if name in self._names.classes:
                pass
            case ast.Attribute() if self._is_of_module(node, CLASSES):
                pass
            case _:
                self._any(node)

    def _classes_or_any(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Tuple):
            for one in node.elts:
                self._class_or_any(one)
        else:
            self._class_or_any(node)


def _is_type_call(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[given], keywords=[]):
            return not isinstance(given, ast.Starred)
        case _:
            return False


def _check_format(text: str) -> None:
    """Raise NotProven for a format that reads attributes or items of its arguments."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:  # the program raises it too
        raise NotProven from None
    for _, name, specification, _ in parts:
        if name is not None and not (name == "" or name.isidentifier() or name.isdigit()):
            raise NotProven
        if specification:
            _check_format(specification)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    every = [*arguments.defaults, *arguments.kw_defaults]
    return [one for one in every if one is not None]


def _are_names(targets: Iterable[ast.expr]) -> bool:
    return all(isinstance(one, ast.Name) for one in targets)
