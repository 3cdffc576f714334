"""Problems as JSON lines: our own schema, into which all sources are converted.

    {"id": "tinycode/17", "split": "train", "statement": "…",
     "tests": [{"call": "solve", "args": […], "expected": …, "public": true},
               {"stdin": "1 2", "expected": "3"},
               {"asserts": "assert f(1) == 2", "entry_point": "f"}],
     "limits": {"cpu_s": 1.0, …}, "comparison": "tokens", "atol": 1e-6, "rtol": 1e-6,
     "isolation": "per_test",
     "entry_point": "solve", "language": "python",
     "checker": {"source": "…", "language": "python", "protocol": "testlib"},
     "difficulty": 2, "date": "2024-08-01", "tags": ["lists"], "gold": ["def solve…"], "bad": ["…"],
     "base_tests": 1, "messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}]}
    {"id": "tasks/17", "split": "train", "statement": "…", "grader": "harbor", "task": "tasks/17"}
    {"id": "sums/1", "split": "train", "statement": "…", "grader": "math", "answer": "42"}
    {"id": "rules/1", "split": "train", "statement": "…", "grader": "instructions",
     "instructions": [{"kind": "punctuation:no_comma", "arguments": {}}]}
    {"id": "calls/1", "split": "train", "statement": "…", "grader": "prediction",
     "prediction": {"of": "output", "program": "def f(x): …", "output": [1, 2]}}
    {"id": "functions/1", "split": "test", "statement": "…", "grader": "harness", "language": "python",
     "harness": {"before": "…", "after": "assert f(1) == 2\nprint(input())"}}

Only id, split, statement and the grader's field are required: tests; the folder of a Harbor task,
relative to the file; a final answer; instructions; a prediction; or a harness. Arguments and expected
values are plain JSON; values that JSON lacks (tuples, sets, keys other than text) use `codec`'s form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import orjson

from coding_model_project import strict_json
from coding_model_project.codec import to_json
from coding_model_project.data.problem_rows import problem_of
from coding_model_project.data.problem_values import Malformed
from coding_model_project.errors import DataError
from coding_model_project.types import Asserts, Call, GradedBy, Isolation, Problem, Stdin, Test


def write_problems(path: Path | str, problems: Iterable[Problem]) -> None:
    """Write problems atomically, one per line."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        for problem in problems:
            file.write(problem_line(problem))
    partial.replace(path)


def problem_line(problem: Problem) -> bytes:
    """Return the line of a file for a problem."""
    return orjson.dumps(_problem_to_json(problem)) + b"\n"


def read_problems(path: Path | str) -> tuple[Problem, ...]:
    """Read problems.

    Raises:
        DataError: the file is missing, a line is malformed or an id occurs twice; names file, line
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
                raise DataError(f"{path}:{number}: id {problem.id!r} occurs twice")
            problems[problem.id] = problem
    return tuple(problems.values())


def from_file(problem: Problem, path: Path) -> Problem:
    """Return a problem with the absolute path of its Harbor task."""
    if problem.task is None:
        return problem
    return replace(problem, task=str(path.parent.resolve() / problem.task))


def _parse(line: bytes, where: str) -> Problem:
    try:
        row = strict_json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON: {error}") from error
    return problem_from_json(row, where)


def problem_from_json(row: Any, where: str) -> Problem:
    """Convert a decoded row into a problem.

    Raises:
        DataError: it is malformed; names `where` and the field.
    """
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object")
    try:
        return problem_of(row)
    except Malformed as error:
        raise DataError(f"{where}: {error}") from error


def _problem_to_json(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "split": problem.split,
        "statement": problem.statement,
        "tests": [_test_to_json(test) for test in problem.tests],
        "limits": asdict(problem.limits),
        "comparison": problem.comparison,
        **_tolerance_to_json(problem),
        **({"checker": asdict(problem.checker)} if problem.checker else {}),
        **_isolation_to_json(problem),
        "entry_point": problem.entry_point,
        "language": problem.language,
        "difficulty": problem.difficulty,
        **({} if problem.date is None else {"date": problem.date}),
        "tags": problem.tags,
        "gold": problem.gold,
        "bad": problem.bad,
        **({"messages": [asdict(one) for one in problem.messages]} if problem.messages else {}),
        **({} if problem.base_tests is None else {"base_tests": problem.base_tests}),
        **_judged_by_to_json(problem),
    }


def _judged_by_to_json(problem: Problem) -> dict[str, Any]:
    """Return the grader and its field; nothing for tests."""
    grader = problem.graded_by
    match grader:
        case GradedBy.tests:
            return {}
        case GradedBy.harbor:
            return {"grader": grader, "task": problem.task}
        case GradedBy.math:
            return {"grader": grader, "answer": problem.answer}
        case GradedBy.instructions:
            rules = [{"kind": one.kind, "arguments": one.arguments} for one in problem.instructions]
            return {"grader": grader, "instructions": rules}
        case GradedBy.prediction:
            prediction = problem.prediction
            assert prediction is not None
            return {
                "grader": grader,
                "prediction": {
                    "of": prediction.of,
                    "program": prediction.program,
                    "output": to_json(prediction.output),
                },
            }
        case GradedBy.harness:
            assert problem.harness is not None
            return {"grader": grader, "harness": asdict(problem.harness)}


def _tolerance_to_json(problem: Problem) -> dict[str, float]:
    """Return the tolerances that are not the default, so that other problems' lines stay the same."""
    default = {field.name: field.default for field in fields(Problem)}
    tolerance = {"atol": problem.atol, "rtol": problem.rtol}
    return {name: value for name, value in tolerance.items() if value != default[name]}


def _isolation_to_json(problem: Problem) -> dict[str, str]:
    is_default = problem.isolation is Isolation.per_test
    return {} if is_default else {"isolation": str(problem.isolation)}


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
