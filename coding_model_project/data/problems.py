"""Problems as JSON lines: our own documented schema, the one all sources end in.

    {"id": "tinycode/17", "split": "train", "statement": "…",
     "tests": [{"call": "solve", "args": […], "expected": …, "public": true},
               {"stdin": "1 2", "expected": "3"},
               {"asserts": "assert f(1) == 2", "entry_point": "f"}],
     "limits": {"cpu_s": 1.0, …}, "comparison": "tokens", "entry_point": "solve", "language": "python",
     "checker": {"source": "…", "language": "python", "protocol": "testlib"},
     "difficulty": 2, "tags": ["lists"], "gold": ["def solve…"], "bad": ["…"]}
    {"id": "tasks/17", "split": "train", "statement": "…", "grader": "harbor", "task": "tasks/17"}

Only id, split, statement and tests are required; of a problem that a Harbor verifier judges, the folder
of its task, relative to the file, in the place of tests. Arguments and expected values are in `codec`'s
form, which for numbers, strings, booleans, null and lists is plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from coding_model_project.codec import from_json, to_json
from coding_model_project.errors import DataError
from coding_model_project.types import (
    Asserts,
    Call,
    Checker,
    Limits,
    Problem,
    Protocol,
    Stdin,
    Test,
    TestInput,
)

HARBOR = "harbor"
"""The field `grader` of a problem that the verifier of a Harbor task judges."""


def write_problems(path: Path | str, problems: Iterable[Problem]) -> None:
    """Write problems, one a line, atomically."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for problem in problems:
            file.write(problem_line(problem))
    partial.replace(path)


def problem_line(problem: Problem) -> bytes:
    """One problem as its line in a file."""
    return orjson.dumps(_problem_to_json(problem)) + b"\n"


def read_problems(path: Path | str) -> tuple[Problem, ...]:
    """Read problems.

    Raises:
        DataError: the file is missing, a line is malformed or an id comes twice; names file, line
            and field.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file of problems")
    problems: dict[str, Problem] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            problem = from_file(_parse(line, f"{path}:{number}"), path)
            if problem.id in problems:
                raise DataError(f"{path}:{number}: id {problem.id!r} was there before")
            problems[problem.id] = problem
    return tuple(problems.values())


def from_file(problem: Problem, path: Path) -> Problem:
    """A problem of a file, with its Harbor task's folder named as from anywhere."""
    if problem.task is None:
        return problem
    return replace(problem, task=str(path.parent.resolve() / problem.task))


def _parse(line: bytes, where: str) -> Problem:
    try:
        row = orjson.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON: {error}") from error
    return problem_from_json(row, where)


def problem_from_json(row: Any, where: str) -> Problem:
    """The problem of one decoded row.

    Raises:
        DataError: it is malformed; names `where` and the field.
    """
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object")
    try:
        return _problem_from_json(row)
    except KeyError as error:
        raise DataError(f"{where}: field {error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{where}: {error}") from error


def _problem_to_json(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "split": problem.split,
        "statement": problem.statement,
        "tests": [_test_to_json(test) for test in problem.tests],
        "limits": asdict(problem.limits),
        "comparison": problem.comparison,
        **({"checker": asdict(problem.checker)} if problem.checker else {}),
        "entry_point": problem.entry_point,
        "language": problem.language,
        "difficulty": problem.difficulty,
        "tags": problem.tags,
        "gold": problem.gold,
        "bad": problem.bad,
        **({"grader": HARBOR, "task": problem.task} if problem.task is not None else {}),
    }


def _problem_from_json(row: dict[str, Any]) -> Problem:
    unknown = row.keys() - _problem_to_json(_EXAMPLE).keys() - {"checker", "grader", "task"}
    if unknown:
        raise ValueError(f"unknown field {', '.join(sorted(unknown))}")
    fields = {key: value for key, value in row.items() if key != "grader"}
    _check_grader(row)
    tests = row.get("tests", ()) if "task" in row else row["tests"]
    fields["tests"] = tuple(_test_from_json(test) for test in tests)
    fields["limits"] = _limits_from_json(row.get("limits", {}))
    if row.get("checker") is not None:
        fields["checker"] = _checker_from_json(row["checker"])
        fields.setdefault("comparison", "checker")
    for name in ("tags", "gold", "bad"):
        fields[name] = tuple(row.get(name, ()))
    for name in ("id", "split", "statement"):
        if not isinstance(row[name], str):
            raise ValueError(f"field '{name}' is not text")
    return Problem(**fields)


def _check_grader(row: dict[str, Any]) -> None:
    grader, task = row.get("grader"), row.get("task")
    if grader not in (None, HARBOR):
        raise ValueError(f"field 'grader' is {grader!r}; there is {HARBOR!r}, and none for tests")
    if (grader == HARBOR) is not isinstance(task, str):
        raise ValueError(f"the fields 'grader': {HARBOR!r} and 'task', a folder, come together")
    if task is not None and row.get("tests"):
        raise ValueError("a problem with a Harbor task has no tests of its own")


def _checker_from_json(row: dict[str, Any]) -> Checker:
    checker = Checker(**{**row, "protocol": Protocol(row.get("protocol", Protocol.testlib))})
    if not isinstance(checker.source, str):
        raise ValueError("the checker's source is not text")
    return checker


def _limits_from_json(row: dict[str, Any]) -> Limits:
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"limits.{name}: {value!r} is no positive number")
    return Limits(**row)


def _test_to_json(test: Test) -> dict[str, Any]:
    match test.input:
        case Stdin(text):
            row: dict[str, Any] = {"stdin": text}
        case Call():
            row = {"call": test.input.function, "args": [to_json(a) for a in test.input.args]}
        case Asserts():
            row = {"asserts": test.input.source, "entry_point": test.input.entry_point}
    row["expected"] = to_json(test.expected)
    if test.public:
        row["public"] = True
    return row


def _test_from_json(row: dict[str, Any]) -> Test:
    text = next((name for name in ("stdin", "call", "asserts") if name in row), "stdin")
    if not isinstance(row.get(text, ""), str):
        raise ValueError(f"a test's field '{text}' is not text")
    if "stdin" in row and not isinstance(row.get("expected"), str):
        raise ValueError("the expected output of a test with 'stdin' is not text")
    if "stdin" in row:
        given: TestInput = Stdin(row["stdin"])
    elif "call" in row:
        given = Call(function=row["call"], args=tuple(from_json(a) for a in row["args"]))
    elif "asserts" in row:
        given = Asserts(source=row["asserts"], entry_point=row.get("entry_point"))
    else:
        raise ValueError("a test needs one of the fields 'stdin', 'call', 'asserts'")
    return Test(
        input=given, expected=from_json(row.get("expected")), public=row.get("public", False)
    )


_EXAMPLE = Problem(id="", split="", statement="", tests=())
