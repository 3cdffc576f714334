"""The second step from a row to a problem: its tests, or its answer, in any form that data sets use.

`truth_of` recognises objects {inputs, outputs, fn_name?}, lists of {input, output, testtype?},
assertions, test code, final answers and instructions; each decoded, as JSON text, or nested under a known
key. A form that it does not know is an error that describes what it saw.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coding_model_project.data.loaders.base import NoTests, Unusable
from coding_model_project.data.loaders.files import HostilePickle, decode
from coding_model_project.data.loaders.modules import called_by_tests, instance, pieces
from coding_model_project.data.loaders.values import (
    NESTED,
    answer_of,
    decoded_of,
    json_of,
    language_of,
    looks_like_code,
)
from coding_model_project.data.problem_rows import problem_of
from coding_model_project.errors import DataError
from coding_model_project.row_readers import Malformed, shown
from coding_model_project.types import Asserts, Call, Instruction, Plain, Stdin, Test

_FUNCTION = ("fn_name", "func_name", "function_name", "entry_point")
_INPUT = ("input", "stdin", "inputs")
_OUTPUT = ("output", "expected_output", "stdout", "outputs", "expected")
_CODE = ("functional", "test_code", "code", "assertion", "assert", "test")
_SETUP = ("import_prefix", "test_setup_code", "setup", "prefix")
_CALL_TYPES = ("function_call", "functional", "call")
_STDIN_TYPES = ("stdin_stdout", "stdin", "stdio", "standard_input")
_PACKED = re.compile(r"e[AFJN][A-Za-z0-9+/]{9}")
"""The start of base64 of zlib's formats."""
ONE_ITEM = "value_or_only_item"
"""The comparison for values that a data set may have wrapped in a list of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Facts from a row's other columns."""

    field: str = "tests"
    """The column, for messages."""
    kind: str | None = None
    """"code" or "math", if the row says so."""
    function: str | None = None
    language: str = "python"
    setup: str = ""
    """Code that goes before each assertion, such as imports."""
    programs: tuple[str, ...] = ()
    """Solutions."""
    public: bool = False

    @property
    def called(self) -> str | None:
        """The function that inputs and outputs are for, if the row says so."""
        return called_by_tests(self.function, self.programs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Tests, an answer or instructions; exactly one of them."""

    tests: tuple[Test, ...] = ()
    function: str | None = None
    """The function that the tests call, if they name it."""
    comparison: str | None = None
    language: str | None = None
    answer: str | None = None
    instructions: tuple[Instruction, ...] = ()


def truth_of(value: Any, hints: Hints = Hints()) -> Truth:
    """Return the tests, answer or instructions in a field, by their form.

    Raises:
        Unusable: the form is unknown, or fits the row's kind of task badly; says what was seen.
    """
    decoded = decoded_of(value)
    if found := _instructions(decoded):
        return Truth(instructions=found)
    if hints.kind == "math":
        return Truth(answer=answer_of(value, hints.field))
    is_text = isinstance(decoded, str)
    if hints.kind != "code" and not _holds_tests(decoded):
        if is_text and not re.search(r"[\d\\$]", decoded) and len(decoded.split()) > 3:
            raise Unusable(
                f"field '{hints.field}' is {shown(decoded)}: neither tests nor an answer"
            )
        return Truth(answer=answer_of(value, hints.field))
    if is_text and not looks_like_code(decoded):
        named = "; rows made by `data rows` name a problem: use the problems.jsonl beside them"
        is_id = "/" in decoded and not decoded.strip().count(" ")
        raise Unusable(
            f"field '{hints.field}' is {shown(decoded)}: no tests{named if is_id else ''}"
        )
    return tests_of(decoded, hints)


def tests_of(value: Any, hints: Hints = Hints()) -> Truth:
    """Return the tests in a field.

    Raises:
        Unusable: there are none, or their form is unknown; says what was seen.
    """
    if isinstance(value, str) and _PACKED.match(value):
        try:
            value = decode(value)
        except HostilePickle as error:
            raise Unusable(f"field '{hints.field}': {error}") from error
    decoded = decoded_of(value)
    if decoded is None or decoded == "" or decoded == [] or decoded == {}:
        raise NoTests("no hidden tests")
    if isinstance(decoded, Mapping):
        return _of_object(decoded, hints)
    if isinstance(decoded, str):
        if decoded.lstrip()[:1] in ("[", "{") and not looks_like_code(decoded):
            raise Unusable(f"field '{hints.field}' is not JSON: {decoded.strip()[:60]!r}")
        return _of_code([decoded], hints)
    if not isinstance(decoded, list):
        raise Unusable(f"field '{hints.field}' is {shown(decoded)}, not tests")
    if all(isinstance(one, Test) for one in decoded):
        return Truth(tests=tuple(decoded))
    if all(isinstance(one, str) for one in decoded):
        return _of_code([one for one in decoded if one.strip()], hints)
    if all(isinstance(one, Mapping) for one in decoded):
        return _of_cases(decoded, hints)
    raise _unknown(decoded, hints)


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────


def _of_object(kept: Mapping[str, Any], hints: Hints) -> Truth:
    named = next((str(kept[name]) for name in _FUNCTION if kept.get(name)), None)
    setup = [str(kept[name]) for name in _SETUP if isinstance(kept.get(name), str)]
    hints = replace(
        hints,
        function=named or hints.function,
        language=language_of(kept["language"]) if kept.get("language") else hints.language,
        setup="\n".join((*setup, hints.setup)).strip(),
    )
    asserts = [one for one in _list(kept.get("assert_case")) if not _is_empty(one)]
    has_cases = any(not _is_empty(kept.get(name)) for name in ("inputs", "outputs"))
    if asserts and has_cases:
        raise Unusable("the ground truth has assertions and inputs")
    if asserts:
        return tests_of(asserts, hints)
    if "inputs" in kept and "outputs" in kept:
        return columns(kept, function=named or hints.called, public=hints.public)
    if any(name in kept for name in _INPUT) and any(name in kept for name in _OUTPUT):
        given, output = _first(kept, _INPUT), _first(kept, _OUTPUT)
        if isinstance(given, list) and isinstance(output, list):
            pairs = {**kept, "inputs": given, "outputs": output}
            return columns(pairs, function=named or hints.called, public=hints.public)
        return _of_cases([kept], hints)
    code = next((kept[name] for name in _CODE if isinstance(kept.get(name), str)), None)
    if code is not None and code.strip():
        return _of_code([code], hints)
    inner = next((kept[name] for name in NESTED if not _is_empty(kept.get(name))), None)
    if inner is not None:
        return replace(tests_of(inner, hints), language=hints.language)
    if any(name in kept for name in (*NESTED, *_CODE, "assert_case")) or not any(kept.values()):
        raise NoTests("no hidden tests")
    raise _unknown(kept, hints)


def _of_cases(cases: Sequence[Mapping[str, Any]], hints: Hints) -> Truth:
    """Convert a list of objects, one for each test, some of which may be public."""
    found = _of_all_cases(cases, hints)
    if not any(map(_is_public, cases)) or len(found.tests) != len(cases):
        return found
    pairs = zip(found.tests, map(_is_public, cases), strict=True)
    return replace(found, tests=tuple(replace(one, public=one.public or is_) for one, is_ in pairs))


def _is_public(case: Mapping[str, Any]) -> bool:
    shown, hidden = (
        next((case[name] for name in names if name in case), None)
        for names in (("public", "is_public"), ("hidden", "is_hidden"))
    )
    return shown is True or hidden is False


def _of_all_cases(cases: Sequence[Mapping[str, Any]], hints: Hints) -> Truth:
    if all({"stdin", "call", "asserts"} & case.keys() and not _outputs(case) for case in cases):
        try:
            own = {"id": "", "split": "", "statement": "", "tests": list(cases)}
            return Truth(tests=problem_of(own).tests)
        except Malformed as error:
            raise Unusable(str(error)) from error
    if codes := [case.get(name) for case in cases for name in _CODE if case.get(name)]:
        if len(codes) == len(cases):
            return _of_code([str(one) for one in codes], hints)
        raise _unknown(cases, hints)
    if not all(any(name in case for name in _INPUT) for case in cases) or not all(
        any(name in case for name in _OUTPUT) for case in cases
    ):
        raise _unknown(cases, hints)
    inputs, outputs = (
        [_first(one, _INPUT) for one in cases],
        [_first(one, _OUTPUT) for one in cases],
    )
    kinds = {_type(case) for case in cases}
    called = hints.called
    calls = any(map(_named, cases)) or (kinds == {""} and called)
    if kinds <= {*_STDIN_TYPES, ""} and not calls:
        if not hints.programs and all(map(_by_name, inputs)):
            raise Unusable(
                f"arguments of a function that nothing names: {shown(inputs[0])}; add --map "
                "entry_point=COLUMN"
            )
        return Truth(tests=_stdin_tests(inputs, outputs, hints.public))
    if not kinds <= {*_CALL_TYPES, ""}:
        raise Unusable(f"tests of types {', '.join(sorted(map(repr, kinds)))}")
    names = {_named(case) or hints.function or called for case in cases}
    name = names.pop() if len(names) == 1 else None
    if not name:
        raise Unusable("tests of a function whose name is missing, or of several functions")
    kept = {"inputs": inputs, "outputs": outputs}
    return columns(kept, function=name, public=hints.public, exact="functional" in kinds)


def _of_code(codes: Sequence[str], hints: Hints) -> Truth:
    if not codes:
        raise NoTests("no hidden tests")
    if hints.language != "python":
        raise Unusable(f"test code for programs in {hints.language}; only Python's is judged")
    lead = f"{hints.setup.strip()}\n" if hints.setup.strip() else ""
    arguments = (hints.function, hints.programs)
    try:
        found = [piece for code in codes for piece in pieces(code, *arguments)]
    except Unusable:
        if len(codes) == 1:
            raise
        found = pieces("\n".join(codes), *arguments)  # the parts of one module
    return Truth(tests=tuple(_asserts(lead + source, hints) for source in found))


def _asserts(source: str, hints: Hints) -> Test:
    """Return a test whose code finds the function as `candidate`, unless it calls it by name."""
    function = hints.function
    if function is not None and (not function.isidentifier() or "def check(" in source):
        if re.search(r"(?<!\()\bcandidate\(", source) and "(candidate" not in source:
            source = f"candidate = {instance(function)}\n{source}"
        function = None
    return Test(input=Asserts(source=source, entry_point=function), public=hints.public)


def columns(
    tests: Mapping[str, Any],
    *,
    function: str | None = None,
    public: bool = False,
    exact: bool = False,
) -> Truth:
    """Convert tests {inputs: […], outputs: […], fn_name?} (APPS, TACO, Eurus).

    With a function, an input is the list of a call's arguments, and an output is its value. Both may be
    text, with one JSON argument per line, or as on LeetCode: "nums = [1, 2], k = 3". Many sets wrap each
    value in a list of one; it is unwrapped if every output of the problem has that form, and then either
    value is right, as in the authors' judges.
    JSON keys are always text, so, as there, a dict whose keys are all digits gets integers.

    Args:
        exact: whether values are never wrapped in a list of one.

    Raises:
        Unusable: the lists differ in length, or hold values of another form.
    """
    inputs, outputs = (decoded_of(tests.get(side)) for side in ("inputs", "outputs"))
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Unusable("tests without lists 'inputs' and 'outputs'")
    if len(inputs) != len(outputs):
        raise Unusable(f"{len(inputs)} test inputs, but {len(outputs)} outputs")
    if not inputs:
        raise NoTests("no hidden tests")
    name = tests.get("fn_name") or function
    if not name:
        return Truth(tests=_stdin_tests(inputs, outputs, public))
    if all(isinstance(given, str) for given in inputs):
        inputs = [_arguments(given) for given in inputs]
        outputs = [json_of(one) if isinstance(one, str) else one for one in outputs]
    if not all(isinstance(given, list) for given in inputs):
        raise Unusable("the arguments of a call are not a list")
    wrapped = not exact and all(isinstance(one, list) and len(one) == 1 for one in outputs)
    values: list[Plain] = [output[0] if wrapped else output for output in outputs]
    return Truth(
        tests=tuple(
            Test(
                input=Call(function=str(name), args=tuple(map(_digit_keys, given))),
                expected=_digit_keys(value),
                public=public,
            )
            for given, value in zip(inputs, values, strict=True)
        ),
        function=str(name),
        comparison=ONE_ITEM if wrapped else None,
    )


def _arguments(text: str) -> list[Plain]:
    """Return the arguments of a call, in their order; their names are not compared."""
    if (named := _by_name(text)) is not None:
        return [json_of(value) for value in named]
    return [json_of(line) for line in text.split("\n") if line.strip()]


def _by_name(given: Any) -> list[str] | None:
    """Return the values of arguments by name, as JSON; None for other inputs."""
    if not isinstance(given, str) or not re.match(r"\s*[a-zA-Z_]\w*\s*=[^=]", given):
        return None
    source = f"f({', '.join(line.strip().strip(',') for line in given.strip().splitlines())})"
    try:
        call = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call) or call.args:
        return None
    return [ast.get_source_segment(source, one.value) or "" for one in call.keywords]


def _stdin_tests(inputs: Sequence[Any], outputs: Sequence[Any], public: bool) -> tuple[Test, ...]:
    return tuple(
        Test(input=Stdin(_stdin(given)), expected=_stdin(output), public=public)
        for given, output in zip(inputs, outputs, strict=True)
    )


def _stdin(value: Any) -> str:
    """Return standard input or output that is stored as text, a number or a list of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and not any(isinstance(one, (list, Mapping)) for one in value):
        return "\n".join(map(_stdin, value))
    raise Unusable(f"a test's standard input or output is not text: {shown(value)}")


# ── keys and values ───────────────────────────────────────────────────────────────────────────────


def _unknown(value: Any, hints: Hints) -> Unusable:
    return Unusable(
        f"field '{hints.field}' has an unknown form of tests: {shown(value)}; expected our own tests, "
        "{inputs, outputs, fn_name}, a list of {input, output}, assertions, or test code"
    )


def _holds_tests(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    if isinstance(value, list):
        return any(isinstance(one, Mapping) or looks_like_code(one) for one in value)
    return looks_like_code(value)


def _instructions(value: Any) -> tuple[Instruction, ...]:
    """Return verifiable instructions; null arguments belong to other kinds.

    IFEval's form (Zhou et al. 2023, arXiv 2311.07911), also of IFBench and of training prompts with up to
    five constraints (Pyatkin et al. 2025, arXiv 2507.02833).
    """
    first = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(first, Mapping) or "kwargs" not in first:
        return ()
    kinds = first.get("instruction_id") or first.get("instruction_id_list")
    if not isinstance(kinds, list):
        return ()
    from coding_model_project.grading.instructions import check_arguments

    found = []
    for kind, given in zip(kinds, first["kwargs"], strict=True):
        own = {name: one for name, one in (given or {}).items() if one is not None}
        try:
            check_arguments(str(kind), own)
        except DataError as error:
            raise Unusable(str(error)) from error
        found.append(Instruction(str(kind), own))
    if not found:
        raise Unusable("no instructions")
    return tuple(found)


def _digit_keys(value: Any) -> Any:
    if isinstance(value, dict) and value and all(str(key).lstrip("-").isdecimal() for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def _type(case: Mapping[str, Any]) -> str:
    return str(case.get("testtype") or case.get("type") or "").lower()


def _named(case: Mapping[str, Any]) -> str | None:
    metadata = case.get("metadata")
    inner = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return next((str(case[name]) for name in _FUNCTION if case.get(name)), inner)


def _outputs(case: Mapping[str, Any]) -> bool:
    return any(name in case for name in _OUTPUT if name != "expected")


def _first(kept: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((kept[name] for name in names if kept.get(name) is not None), "")


def _list(value: Any) -> list[Any]:
    value = decoded_of(value)
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def _is_empty(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in ("", "[]", "{}", "null", '""')
    return value is None or value is False or (isinstance(value, Sequence | Mapping) and not value)
