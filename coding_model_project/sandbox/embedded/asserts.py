"""Trusted tests in their own confined process that call a program in another.

Only data crosses (`crossing`, `handles`, `caller`), so nothing the program does to its own process
(patched built-ins, objects that equal everything, an early exit, a forged result) reaches the asserts:

- A name is the program's only if the program defines it and it is not a built-in. The entry point is
  always the program's, whatever its name.
- Modules that the program imported are imported again here.
- Arguments that the program changed in place are changed here if its call returned None. After other
  calls one is only if the tests do no more with it than compare it with literals (`tests_source`).
  Otherwise `x.clear(); return []` would pass `f(x) == sorted(x)`.
- The program may call the tests' functions and use their objects; a failed assert in one is a failure,
  whatever the program does with it.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import os
import sys
import types
from typing import Any, NoReturn

from coding_model_project.sandbox.embedded import exchange, tests_source
from coding_model_project.sandbox.embedded.caller import TESTS, Caller
from coding_model_project.sandbox.embedded.crossing import Pipe
from coding_model_project.sandbox.embedded.handles import Handle, Kind

ANSWER, READER, WRITER, REQUESTS = 3, 4, 5, 6
"""Descriptors: the tests' results, the program's answers, requests to it, and the tests (`exchange`)."""

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
        while (source := exchange.receive(REQUESTS)) is not None:
            outcome = json.dumps(tests.outcome(source)).encode()
            if tests.caller.failure is not None:  # the program is gone, or out of step
                exchange.send(ANSWER, exchange.LAST + outcome)
                break
            exchange.send(ANSWER, exchange.MORE + outcome)
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
            names = tests_source.read(source, _FILE)
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

    def _run(self, code: types.CodeType, names: tests_source.Names) -> None:
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
        namespace[tests_source.COUNTED] = self._counted
        namespace[tests_source.CHANGING] = self._changing
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
