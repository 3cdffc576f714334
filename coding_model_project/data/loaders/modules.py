"""Test code in Python: assertions, `check(candidate)`, and modules of pytest or unittest.

Code runs as it is if it calls something itself. What a framework would call is called here: each test
function and each method of a test class becomes a separate piece, with the module's imports and helpers;
`check(candidate)` is called with the program's function. The tests' process has no pytest, so a few lines
replace `pytest.raises`. Code that needs more of pytest (parameters, fixtures, setup functions), libraries
or files is set aside with the reason.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from coding_model_project.data.loaders.base import Unusable
from coding_model_project.grading.wellformed import PROGRAM_MODULES, acts

_NOT_HERE = {"subprocess", "tempfile", "shutil", "pathlib", "os", "socket", "threading"}
"""Modules of the standard library that indicate a need for files or processes."""

_MAX_CODE = 1_000_000
"""Maximum length of test code, in characters; parsing takes up to 5 µs for each."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_SETUPS = {
    *("setup_module", "setup_function", "setUpModule"),
    *("teardown_module", "teardown_function", "tearDownModule"),
}

_RAISES = """\
class _Raises:
    def __init__(self, kinds, match=None):
        self.kinds, self.pattern, self.type, self.value, self.tb = kinds, match, None, None, None
    def __enter__(self):
        return self
    def __exit__(self, kind, value, trace):
        assert kind is not None, "nothing was raised"
        self.type, self.value, self.tb = kind, value, trace
        if not issubclass(kind, self.kinds):
            return False
        return self.pattern is None or self.match(self.pattern)
    def match(self, pattern):
        import re
        assert re.search(pattern, str(self.value)), str(self.value)
        return True
class pytest:
    raises = _Raises
"""


@dataclass(slots=True)
class _Module:
    """The parts of test code that run, in order."""

    body: list[ast.stmt] = field(default_factory=list)
    tests: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = field(default_factory=list)
    """Test functions and test classes; also in `body`."""
    main: list[ast.stmt] = field(default_factory=list)
    """The statements under `if __name__ == "__main__":`, which do not run."""

    @property
    def lead(self) -> list[ast.stmt]:
        """The statements other than tests."""
        return [node for node in self.body if node not in self.tests]


def pieces(source: str, entry_point: str | None = None, programs: Sequence[str] = ()) -> list[str]:
    """Return pieces of test code that together call all tests.

    Args:
        entry_point: the name or expression of the function to check.
        programs: solutions, which name the function if nothing else does.

    Raises:
        Unusable: it is not Python, calls nothing, or needs pytest, a library or a file.
    """
    tree = parsed(source)
    module = _parts(tree, _defined(programs))
    if checker := _uncalled_check(module):
        target = entry_point or _checked_by(module.main) or only_function(programs)
        if target is None:
            raise Unusable(
                f"the tests define {checker}(candidate), but nothing names the function to check; "
                "add --map entry_point=COLUMN"
            )
        module.body.append(ast.parse(f"{checker}({instance(target)})").body[0])
    elif not module.tests and not any(map(acts, module.body)):
        module.body += module.main
    shim = _RAISES if "pytest" in source and _check_pytest(module.body) else ""
    used = _names(module.lead) if module.tests else set()
    apart = not any(node.name in used for node in module.tests)
    calls = [
        case for node in module.tests if apart or node.name not in used for case in _calls(node)
    ]
    if not calls and not any(map(acts, module.lead)):
        raise Unusable("the tests have no test function and call nothing")
    if calls and apart:
        lead = shim + _unparsed(module.lead)
        return [f"{lead}{_unparsed([node])}{call}" for node, call in calls]
    end = "".join(call for _, call in calls)
    if shim or module.body[: len(tree.body)] != tree.body:
        return [f"{shim}{_unparsed(module.body)}{end}"]
    added = _unparsed(module.body[len(tree.body) :]) + end
    return [f"{source.rstrip()}\n{added}" if added else source]


def parsed(source: str) -> ast.Module:
    """Parse Python.

    Raises:
        Unusable: it is too long, or not Python; quotes its first line.
    """
    if len(source) > _MAX_CODE:
        raise Unusable(f"test code of {len(source)} characters, at most {_MAX_CODE} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in others' code
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        first = next((line for line in source.splitlines() if line.strip()), "")
        raise Unusable(
            f"the tests do not parse as Python ({type(error).__name__}): {first.strip()[:80]!r}"
        ) from error


def instance(entry_point: str) -> str:
    """Return an expression for an entry point: a method of a class needs an instance."""
    owner, _, method = entry_point.rpartition(".")
    return f"{owner}().{method}" if owner.isidentifier() and method else entry_point


def root(entry_point: str | None) -> str | None:
    """Return the name that an entry point begins with: "Solution" for "Solution().add"."""
    found = "" if entry_point is None else entry_point.replace("(", ".").partition(".")[0].strip()
    return found if found.isidentifier() else None


def _defined(programs: Sequence[str]) -> set[str]:
    """Return the names that the first solution defines at its top."""
    try:
        body = parsed(programs[0]).body if programs else []
    except Unusable:
        return set()
    named = {node.name for node in body if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}
    targets = (one for node in body if isinstance(node, ast.Assign) for one in node.targets)
    return named | {one.id for one in targets if isinstance(one, ast.Name)}


def _parts(tree: ast.Module, of_program: set[str]) -> _Module:
    module = _Module()
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module.body += _imports(node, of_program)
        elif _is_main(node):
            assert isinstance(node, ast.If)
            module.main += node.body
        else:
            module.body.append(node)
            if isinstance(node, _FUNCTIONS) and node.name in _SETUPS:
                raise Unusable(f"the tests need {node.name}, which pytest calls")
            is_function = isinstance(node, _FUNCTIONS) and node.name.startswith("test")
            if is_function or (isinstance(node, ast.ClassDef) and _is_test_class(node)):
                assert isinstance(node, (*_FUNCTIONS, ast.ClassDef))
                module.tests.append(node)
    names = {node.name for node in module.tests}
    module.body = [node for node in module.body if not _is_plain_call(node, names)]  # made anyway
    return module


def _imports(node: ast.Import | ast.ImportFrom, of_program: set[str]) -> list[ast.stmt]:
    """Return an import without the program's names, which the tests see anyway, and without pytest.

    The program's module may have any name: all that is imported from it is defined by the solution.
    """
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    known = {*sys.stdlib_module_names, "pytest"}
    if isinstance(node, ast.ImportFrom) and (
        module in PROGRAM_MODULES
        or node.level
        or (
            module.partition(".")[0] not in known and {one.name for one in node.names} <= of_program
        )
    ):
        if any(name.name == "*" for name in node.names):
            return []
        renamed = [name for name in node.names if name.asname not in (None, name.name)]
        return [ast.parse(f"{name.asname} = {name.name}").body[0] for name in renamed]
    roots = [module] if module else [name.name for name in node.names]
    for first in (name.partition(".")[0] for name in roots):
        if first in PROGRAM_MODULES:
            raise Unusable("the tests import the solution as a module")
        if first == "pytest":
            if module or any(name.asname for name in node.names):
                raise Unusable("the tests import parts of pytest")
            return []
        if first not in sys.stdlib_module_names:
            raise Unusable(
                f"the tests import {first}, which is not in the standard library and not defined by a "
                "solution (--map gold=COLUMN)"
            )
        if first in _NOT_HERE:
            raise Unusable(f"the tests import {first}")
    return [node]


def _is_test_class(node: ast.ClassDef) -> bool:
    return _is_test_case(node) or (node.name.startswith("Test") and not node.bases)


def _is_test_case(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2].endswith("TestCase") for base in node.bases)


_Case = tuple[ast.stmt, str]
"""A test function or class, and the code that calls one test of it."""


def _calls(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[_Case]:
    if not isinstance(node, ast.ClassDef):
        _check_plain(node, 0)
        yield node, _called(f"{node.name}()", node)
        return
    methods = [one for one in node.body if isinstance(one, _FUNCTIONS)]
    known = {one.name for one in methods}
    for method in methods:
        if not method.name.startswith("test"):
            continue
        if _is_test_case(node):
            yield node, f"{node.name}.setUpClass()\n{node.name}({method.name!r}).debug()\n"
            continue
        _check_plain(method, 1)
        before = [f"_case.{name}()\n" for name in ("setup_method", "setup") if name in known]
        call = _called(f"_case.{method.name}()", method)
        yield node, f"_case = {node.name}()\n{''.join(before)}{call}"


def _called(call: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.AsyncFunctionDef):
        return f"import asyncio\nasyncio.run({call})\n"
    return f"{call}\n"


def _check_plain(node: ast.FunctionDef | ast.AsyncFunctionDef, n_own: int) -> None:
    if node.decorator_list:
        raise Unusable("tests with decorators, such as pytest's parameters")
    needed = len(node.args.args) - len(node.args.defaults)
    if needed > n_own or node.args.vararg or node.args.kwonlyargs:
        raise Unusable("tests with arguments, which are pytest's fixtures")


def _uncalled_check(module: _Module) -> str | None:
    """Return the name of a function of one `candidate` that the code itself does not call."""
    for node in module.lead:
        if isinstance(node, _FUNCTIONS) and len(node.args.args) == 1 and not node.args.defaults:
            is_check = node.name == "check" or node.args.args[0].arg == "candidate"
            if is_check and node.name not in _names(module.lead, outside=node):
                return node.name
    return None


def _checked_by(body: list[ast.stmt]) -> str | None:
    """Return the function that `check(function)` under the main guard checks."""
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if ast.unparse(call.func).startswith("check") and len(call.args) == 1:
                return ast.unparse(call.args[0])
    return None


def called_by_tests(named: str | None, programs: Sequence[str]) -> str | None:
    """Return the function that inputs and outputs are for; None if they are for a script.

    Args:
        named: the function that the row names.
        programs: solutions. One that reads standard input is a script, and one that does nothing when
            it runs is none.
    """
    first = programs[0] if programs else ""
    if re.search(r"\binput\(|\bstdin\b|\bopen\(0", first):
        return None
    if named is not None:
        return named
    try:
        return None if any(map(acts, parsed(first).body)) else only_function(programs)
    except Unusable:
        return None


def only_function(programs: Sequence[str]) -> str | None:
    """Return the function of the first program that defines exactly one at its top."""
    try:
        body = parsed(programs[0]).body if programs else []
    except Unusable:
        return None
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == "Solution":
            names = [f"Solution.{one.name}" for one in node.body if isinstance(one, _FUNCTIONS)]
            return names[0] if len(names) == 1 else None
    names = [node.name for node in body if isinstance(node, _FUNCTIONS)]
    return names[0] if len(names) == 1 else None


def _names(body: Iterable[ast.stmt], outside: ast.stmt | None = None) -> set[str]:
    """Return the names that statements use, which is more than those that they call."""
    return {
        inner.id
        for node in body
        if node is not outside
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    }


def _is_plain_call(node: ast.stmt, names: set[str]) -> bool:
    """Return whether a statement is only the call of a test function: `test_sum()`."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[], keywords=[])):
            return name in names
    return False


def _unparsed(body: Iterable[ast.stmt]) -> str:
    return "".join(f"{ast.unparse(node)}\n" for node in body)


def _check_pytest(body: list[ast.stmt]) -> bool:
    """Return whether the module uses pytest, that is, `pytest.raises`.

    Raises:
        Unusable: it uses other parts of pytest.
    """
    used = False
    for node in (inner for one in body for inner in ast.walk(one)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pytest"), attr="raises")):
                if len(node.args) != 1 or any(key.arg != "match" for key in node.keywords):
                    raise Unusable("pytest.raises with a function to call")
            case ast.Attribute(value=ast.Name(id="pytest"), attr=name):
                if name != "raises":
                    raise Unusable(f"the tests use pytest.{name}")
                used = True
            case _:
                pass
    return used


def _is_main(node: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
