"""Trusted tests in their own confined process that call a program in another.

Only data crosses (`crossing`, `caller`), so nothing the program does to its own process
(patched built-ins, objects that equal everything, an early exit, a forged result) reaches the asserts:

- A name is the program's only if the program defines it and it is not a built-in. The entry point is
  always the program's, whatever its name.
- Modules that the program imported are imported again here.
- Arguments that the program changed in place are changed here if its call returned None. After other
  calls one is only if the tests do no more with it than compare it with literals (`Names`).
  Otherwise `x.clear(); return []` would pass `f(x) == sorted(x)`.
- The program may call the tests' functions and use their objects; a failed assert in one is a failure,
  whatever the program does with it.

What the tests' syntax says depends on the tests alone, never on a program. `ast` is not available
wherever this runs, so nodes are told apart by the names of their classes.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import os
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from coding_model_project.sandbox.embedded import frames
from coding_model_project.sandbox.embedded.caller import TESTS, Caller, Handle, Kind
from coding_model_project.sandbox.embedded.crossing import Pipe

_ONLY_TREE = 0x400
"""`ast.PyCF_ONLY_AST`."""

_DEFINITIONS = ("FunctionDef", "AsyncFunctionDef", "ClassDef", "ExceptHandler")

COUNTED, CHANGING = "__counted__", "__changing__"
"""Names of a decorator of `check`, and of a function that makes a call change an argument here too."""


def read_names(source: bytes, file: str) -> Names:
    """Return the facts about a source.

    Raises:
        SyntaxError, ValueError, RecursionError: it does not compile.
    """
    tree: Any = compile(source, file, "exec", _ONLY_TREE, dont_inherit=True)
    loaded, stored, defined = set[str](), set[str](), set[str]()
    for node in _walk(tree):
        kind = _kind_of(node)
        if kind == "Name":
            (loaded if _kind_of(node.ctx) == "Load" else stored).add(node.id)
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
            kind = _kind_of(node)
            if kind == "Assign" and any(map(_is_stdin, node.targets)):
                return "replace sys.stdin, which the program does not share"
            is_own = kind == "Call" and _dotted(node.func).partition(".")[0] in self.defined
            if kind == "Call" and not is_own and _stays_here(node):
                return f"use {_dotted(node.func)}, which does not reach the program's process"
        return None

    def compiled(self, file: str) -> types.CodeType:
        """Return the code of the tests, with calls of `COUNTED` and `CHANGING` added."""
        for node in self.tree.body:
            if _kind_of(node) == "FunctionDef" and node.name == "check":
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
    if _kind_of(node) != "Assign" or len(node.targets) > 1 or _kind_of(node.targets[0]) != "Name":
        return None
    return node.targets[0].id if _is_literal(node.value) else None


def _uses(name: str, block: list[Any]) -> list[Any]:
    """Return the statements that use a variable, up to one that sets it anew."""
    uses = []
    for node in block:
        if _set_to_literal(node) == name:
            break
        if any(_kind_of(one) == "Name" and one.id == name for one in _walk(node)):
            uses.append(node)
    return uses


def _compares(statement: Any, name: str) -> bool:
    """Return whether an assert uses a variable only to compare it with literals."""
    if _kind_of(statement) not in ("Assert", "Expr"):
        return False
    compared: set[int] = set()
    tested = getattr(statement, "test", statement)
    for node in _walk(tested):
        sides: list[Any] = []
        if _kind_of(node) == "Compare":
            sides = [node.left, *node.comparators]
        elif _kind_of(node) == "Call" and _dotted(node.func).startswith("self.assert"):
            sides = node.args[:2]
        for side in sides:
            if all(_is_literal(other) for other in sides if other is not side) and sides[1:]:
                compared |= set(map(id, _walk(side)))
    return all(id(n) in compared for n in _walk(tested) if _kind_of(n) == "Name" and n.id == name)


def _calls_with(name: str, statement: Any) -> Iterator[tuple[Any, int]]:
    """Yield the call that a variable is an argument of, and its place, if the statement has no more."""
    uses = [one for one in _walk(statement) if _kind_of(one) == "Name" and one.id == name]
    if len(uses) > 1 or _kind_of(statement) not in ("Expr", "Assign", "Assert"):
        return
    for call in _walk(statement):
        if _kind_of(call) == "Call" and not any(_kind_of(one) == "Starred" for one in call.args):
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


def _kind_of(node: Any) -> str:
    return type(node).__name__


def _dotted(node: Any) -> str:
    if _kind_of(node) == "Attribute":
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if _kind_of(node) == "Name" else ""


def _is_stdin(node: Any) -> bool:
    return _dotted(node) == "sys.stdin"


def _is_literal(node: Any) -> bool:
    return all(_kind_of(one) != "Name" for one in _walk(node)) and _kind_of(node) != "JoinedStr"


ANSWER, READER, WRITER, REQUESTS = 3, 4, 5, 6
"""Descriptors: the tests' results, the program's answers, requests to it, and the tests (`frames`)."""

_FILE = "tests.py"
_LINE_CHARS = 500


def run(entry_point: str | None, max_bytes: int) -> NoReturn:
    """Run tests in this process as they arrive, and send the outcome of each; ends the process.

    Later tests see the state that earlier ones left in the program and in their own names. Tests pass
    only if every line ran: `{"passed": true}` is sent last of all.

    Args:
        max_bytes: longest answer accepted from the program.
    """
    tests = _Tests(entry_point, Caller(Pipe(READER, WRITER, max_bytes)))
    with contextlib.suppress(BaseException):
        while (source := frames.next_message(REQUESTS)) is not None:
            outcome = json.dumps(tests.outcome(source)).encode()
            if tests.caller.failure is not None:  # the program is gone, or out of step
                frames.send_message(ANSWER, frames.LAST + outcome)
                break
            frames.send_message(ANSWER, frames.MORE + outcome)
    os._exit(0)


class _Tests:
    """Tests of one program, and their namespace."""

    def __init__(self, entry_point: str | None, caller: Caller) -> None:
        self.caller = caller
        self._entry_point = entry_point
        self._namespace: dict[str, Any] = {"__name__": TESTS, "__builtins__": builtins}
        self._defined: tuple[set[str], set[str]] | None = None
        self._was_checked = False
        """True once the tests that run have called their `check`."""
        self._candidate: Any = None
        """Handle of the program's function."""
        self._own: set[str] = set()
        """Names that tests have set; from then on they are not the program's."""

    def outcome(self, source: bytes) -> dict[str, Any]:
        """Run tests and return their outcome, ready for JSON."""
        try:
            return self._outcome(source)
        except BaseException as error:  # noqa: BLE001 - such as no memory left for more detail
            return {"failed": "raised", "line": type(error).__name__}

    def _outcome(self, source: bytes) -> dict[str, Any]:
        self.caller.failed_inside = None
        try:
            if b"assertSetEqual" in source:
                _require_sets()
            names = read_names(source, _FILE)
            code = names.compiled(_FILE)
        except (SyntaxError, ValueError, RecursionError) as error:
            return {"failed": "data", "line": f"do not compile: {_text(error)}"}
        try:
            self._run(code, names)
            outcome: dict[str, Any] = {"passed": True}
        except MemoryError as error:
            outcome = {"failed": "memory", "line": _line(error, source)}
        except AssertionError as error:
            kind = "raised" if self.caller.is_of_program(error) else "assertion"
            outcome = {"failed": kind, "line": _line(error, source) or _text(error)}
        except BaseException as error:  # noqa: BLE001 - the tests' own exit is not a pass either
            outcome = {"failed": "raised", "line": f"{_line(error, source)} {_text(error)}".strip()}
        if self.caller.failed_inside is not None and "passed" in outcome:
            outcome = {"failed": "assertion", "line": _line(self.caller.failed_inside, source)}
        if self.caller.failure == "data":
            return {"failed": "data", "line": self.caller.refused}
        if self.caller.failure is not None:
            return {"line": "", **outcome, "passed": False, "failed": self.caller.failure}
        return outcome

    def _run(self, code: types.CodeType, names: Names) -> None:
        caller = self.caller
        if self._defined is None:
            self._defined = caller.names_of_program()
        modules, others = self._defined
        namespace, entry_point = self._namespace, self._entry_point
        entry_name = entry_point.rpartition(".")[2] if entry_point else None
        used = names.loaded - set(dir(builtins)) - {entry_point}
        for name in (used & others) - self._own:  # each time, since the program may change them
            namespace[name] = caller.ask("find", name)
        for name in used & modules & set(sys.stdlib_module_names) - self._own:
            namespace[name] = __import__(name)
        if entry_point and entry_name and self._candidate is None:
            self._candidate = caller.ask("find", entry_point)
            namespace[entry_name] = namespace["candidate"] = self._candidate
        if reason := names.refusal():
            caller.refuse(reason)
        namespace[COUNTED] = self._counted
        namespace[CHANGING] = self._changing
        before = dict(namespace)
        caller.was_asked = self._was_checked = False
        try:
            exec(code, namespace)
        finally:
            changed = {n for n, value in namespace.items() if before.get(n) is not value}
            self._own |= changed | (names.stored & namespace.keys())
        check: Any = namespace.get("check")
        if entry_point and check is not before.get("check") and not self._was_checked:
            self._check(check, {"candidate", entry_name}, "check" in names.loaded)

    def _check(self, check: Any, own: set[str | None], is_used: bool) -> None:
        """Call a `check` that the tests define and did not call, unless it is a helper.

        Args:
            own: names of a parameter that takes the program's function.
            is_used: whether the tests name `check`, perhaps where nothing runs it.
        """
        function = getattr(check, "__wrapped__", check)
        if not isinstance(function, types.FunctionType):
            return
        code = function.__code__
        takes_program = code.co_argcount > 0 and code.co_varnames[0] in own
        n_given = code.co_argcount - len(function.__defaults__ or ())
        n_given += code.co_kwonlyargcount - len(function.__kwdefaults__ or ())
        if n_given == 1 and code.co_argcount and (takes_program or not is_used):
            check(self._candidate)
        elif takes_program and n_given > 1:
            if is_used and self.caller.was_asked:
                raise AssertionError("check was not called")
            self.caller.refuse("define a check of several arguments, and do not call it")

    def _counted(self, check: Any) -> Any:
        """Return `check` so that its calls are known."""

        @functools.wraps(check)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self._was_checked = True
            return check(*arguments, **keywords)

        return counted

    def _changing(self, function: Any, place: int) -> Any:
        """Return a function of the program so that its change of an argument is brought back."""
        if not isinstance(function, (Handle, Kind)):
            return function
        return lambda *arguments, **keywords: self.caller.ask(
            "call", function, arguments, keywords, changed=place
        )


def _require_sets() -> None:
    """Let `assertSetEqual` take real sets only: it asks what it gets for the difference."""
    import unittest

    compare: Any = unittest.TestCase.assertSetEqual

    def strict(self: Any, set1: Any, set2: Any, msg: Any = None) -> None:
        for value in (set1, set2):
            self.assertIsInstance(value, (set, frozenset), msg)
        compare(self, set1, set2, msg)

    if compare.__module__ != __name__:
        unittest.TestCase.assertSetEqual = strict


def _line(error: BaseException, source: bytes) -> str:
    """Return the failed line of the tests."""
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
