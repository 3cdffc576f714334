"""Conversion of tests from the forms that data sets use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coding_model_project import strict_json
from coding_model_project.data.loaders.base import Unusable
from coding_model_project.types import Call, Plain, Stdin, Test


def pairs(cases: Any) -> list[tuple[str, str]]:
    """Return inputs with outputs, from a list of {input, output} or an object of two lists.

    Raises:
        Unusable: an output is missing, or one of them is not text.
    """
    if cases is None:
        return []
    if isinstance(cases, Mapping):
        inputs, outputs = cases.get("input") or [], cases.get("output") or []
        if len(inputs) != len(outputs):
            raise Unusable(f"{len(inputs)} test inputs, but {len(outputs)} outputs")
        found = list(zip(inputs, outputs, strict=True))
    else:
        found = [(case["input"], case["output"]) for case in cases]
    if not all(isinstance(value, str) for pair in found for value in pair):
        raise Unusable("a test's input or output is not text")
    return found


def stdin_tests(cases: Sequence[tuple[str, str]], *, public: bool = False) -> tuple[Test, ...]:
    """Return tests of scripts."""
    return tuple(Test(input=Stdin(given), expected=out, public=public) for given, out in cases)


def stdin_text(value: Any) -> str:
    """Return standard input or output that is stored as text or as a list of lines.

    Raises:
        Unusable: it is neither.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(line, (str, int, float)) for line in value):
        return "\n".join(map(str, value))
    raise Unusable(f"a test's standard input or output is of type {type(value).__name__}")


def lines_call(function: str, given: str, expected: str, *, public: bool = False) -> Test:
    """Return a call whose arguments are JSON, one per line, and whose result is JSON.

    Raises:
        Unusable: they are not JSON.
    """
    try:
        args = tuple(strict_json.loads(line) for line in given.split("\n") if line.strip())
        value = strict_json.loads(expected)
    except ValueError as error:
        raise Unusable(f"a test's arguments are not JSON: {error}") from error
    return Test(input=Call(function=function, args=args), expected=value, public=public)


def columns(tests: Mapping[str, Any], *, public: bool = False) -> tuple[Test, ...]:
    """Convert tests {inputs: […], outputs: […], fn_name?} (APPS, TACO, Eurus).

    With `fn_name`, an input is the list of a call's arguments, and an output is its value. Both may be
    text, with one JSON argument per line (Eurus, verl). Many sets wrap each value in a list of one; it is
    unwrapped if every output of the problem has that form. JSON keys are always text, so, as in the
    authors' judges, a dict whose keys are all digits gets integers.

    Raises:
        Unusable: the lists differ in length, or hold values of another form.
    """
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Unusable("tests without lists 'inputs' and 'outputs'")
    if len(inputs) != len(outputs):
        raise Unusable(f"{len(inputs)} test inputs, but {len(outputs)} outputs")
    name = tests.get("fn_name")
    if not name:
        return stdin_tests(
            [(stdin_text(i), stdin_text(o)) for i, o in zip(inputs, outputs, strict=True)],
            public=public,
        )
    in_text = all(isinstance(given, str) for given in inputs)
    if in_text:
        inputs = [_lines(given) for given in inputs]
        outputs = [from_json(output, "outputs") for output in outputs]
    wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    values: list[Plain] = [output[0] if wrapped else output for output in outputs]
    if not all(isinstance(given, list) for given in inputs):
        raise Unusable("the arguments of a call are not a list")
    return tuple(
        Test(
            input=Call(function=str(name), args=tuple(map(_digit_keys, given))),
            expected=_digit_keys(value),
            public=public,
        )
        for given, value in zip(inputs, values, strict=True)
    )


def _lines(given: str) -> list[Any]:
    return [from_json(line, "inputs") for line in given.split("\n") if line.strip()]


def _digit_keys(value: Any) -> Any:
    if isinstance(value, dict) and value and all(key.lstrip("-").isdecimal() for key in value):
        return {int(key): item for key, item in value.items()}
    return value


def call_cases(cases: Sequence[Mapping[str, Any]], *, public: bool = False) -> tuple[Test, ...]:
    """Convert tests {type: "function_call", fn_name, input: […], output} (Prime Intellect).

    Raises:
        Unusable: they call several functions, or have another form.
    """
    names = {case.get("fn_name") for case in cases}
    if len(names) != 1 or not all(names):
        raise Unusable("tests of a function whose name is missing, or of several functions")
    inputs, outputs = ([case[side] for case in cases] for side in ("input", "output"))
    kept = {"fn_name": names.pop(), "inputs": inputs, "outputs": outputs}
    return columns(kept, public=public)


def with_starter(statement: str, starter: Any, function: str | None) -> str:
    """Add the starter code to a statement, and the function's name if it does not occur otherwise."""
    if isinstance(starter, str) and starter.strip() and starter.strip() not in statement:
        statement += f"\n\nStart from this code:\n\n```python\n{starter.rstrip()}\n```\n"
    if function and function not in statement:
        statement += f"\n\nName the function `{function}`.\n"
    return statement


def from_json(value: Any, field: str) -> Any:
    """Decode a field that holds JSON as text; an already decoded one is returned unchanged.

    Raises:
        Unusable: the text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return strict_json.loads(value)
    except ValueError as error:
        raise Unusable(f"field '{field}' is not JSON: {error}") from error
