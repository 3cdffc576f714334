"""Problems as Harbor tasks: one folder each, which any Harbor can run and whose oracle scores 1.0.

    instruction.md   the statement, and the required file and names; no hidden test
    environment/     a plain Python image
    solution/        the first gold program as a file, and solve.sh, which copies it
    tests/           cases.json with expected outputs, and judge.zip, the judging rules: modules of
                     this package as source and byte code

The verifier runs in an environment of its own and gets only the program from the agent's.
"""

from __future__ import annotations

import ast
import io
import json
import marshal
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any

from coding_model_project.contained import file_name
from coding_model_project.data.governance import role
from coding_model_project.data.loaders.quirks import without_tests
from coding_model_project.data.problems import test_to_json
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.compare import output_rule
from coding_model_project.grading.prelude import with_prelude
from coding_model_project.harbor.format.task import RANGE_KEY, write_task
from coding_model_project.harbor.format.task_config import (
    Artifact,
    Package,
    TaskConfig,
    VerifierConfig,
    VerifierMode,
)
from coding_model_project.harbor.loader import EXPORTED
from coding_model_project.isolation.carried_source import carried
from coding_model_project.types import Asserts, Call, Problem, Stdin, Test

IMAGE = "python:3.11-slim"
DOCKERFILE = f"FROM {IMAGE}\nWORKDIR /app\n"
PROGRAM = "/app/solution.py"
_JUDGE = "coding_model_project.harbor.export.verifier"
"""It imports only this package's rules and the standard library."""

_START_S, _SPARE_S, _MOST_S = 1.0, 60.0, 3600.0
"""Seconds to start a test; seconds in addition to all tests; most seconds for all tests."""

_SOLVE = """#!/bin/bash
# The reference solution, byte for byte.
cp -- "$(dirname -- "$0")/solution.py" {program}
"""
TEST = f"""#!/bin/bash
# Judges {PROGRAM} and writes the reward; needs Python 3.11 or later and no network.
tests="$(dirname -- "$0")"
exec env -i PATH="$PATH" PYTHONHASHSEED=0 PYTHONINTMAXSTRDIGITS=0 LC_ALL=C.UTF-8 \\
    python3 -s -P -B -c 'import gc, sys
gc.disable(); sys.path.insert(0, sys.argv[1])
from coding_model_project.harbor.export.verifier import main; del sys.path[0]; main(sys.argv[2:])' \\
    "$tests/judge.zip" "$tests/cases.json" {PROGRAM} /logs/verifier
"""


class _Unsuited(Exception):
    """A problem that cannot be a task. The message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The written tasks' folders, and why other problems were set aside, by problem id."""

    tasks: tuple[Path, ...]
    set_aside: dict[str, str]


def export(
    problems: Iterable[Problem], out: Path, progress: Callable[[], None] = lambda: None
) -> Exported:
    """Write each problem as a task in `out`. The same problems give the same bytes.

    Args:
        progress: called after each problem.

    Raises:
        ConfigError: a task's folder exists, or two problems would share one.
    """
    archive = judge()
    tasks: list[Path] = []
    set_aside: dict[str, str] = {}
    for problem in problems:
        try:
            config, files = _task(problem)
        except (_Unsuited, SyntaxError) as error:
            set_aside[problem.id] = str(error)
        else:
            folder = out / file_name(problem.id)
            write_task(folder, config, {**files, "tests/judge.zip": archive})
            tasks.append(folder)
        progress()
    return Exported(tasks=tuple(tasks), set_aside=set_aside)


def divided(problems: Iterable[Problem], train_size: int) -> tuple[list[Problem], list[Problem]]:
    """Return the first problems that may be trained on, by id, and all others, which are for tests.

    Raises:
        ConfigError: fewer problems may be trained on.
    """
    ordered = sorted(problems, key=_sorting)
    may = [
        one
        for one in ordered
        if one.split == "train" and role(one.id.split("/")[0], one.split).may_train
    ]
    if len(may) < train_size:
        raise ConfigError(f"--train-size={train_size}: only {len(may)} problems may be trained on")
    train = may[:train_size]
    chosen = {one.id for one in train}
    others = [one for one in ordered if one.id not in chosen]
    return train, [replace(one, split="test") for one in others]


def _sorting(problem: Problem) -> tuple[str, int, str]:
    """Return a key by which numbers at the end of ids follow each other as numbers."""
    source, _, number = problem.id.rpartition("/")
    return source, int(number) if number.isdecimal() else -1, number


def _task(problem: Problem) -> tuple[TaskConfig, dict[str, str]]:
    """Return a problem's task configuration and files, without the judge.

    Raises:
        _Unsuited: it has no solution, no hidden test, or an unsupported language or kind of test.
        SyntaxError: its solution or a test does not parse.
    """
    if problem.language != "python":
        raise _Unsuited(f"its language is {problem.language}")
    if not problem.gold:
        raise _Unsuited("it has no reference solution")
    if not problem.hidden_tests:
        raise _Unsuited("it has no hidden test")
    if any(isinstance(test.input, Stdin) for test in problem.hidden_tests):
        if problem.comparison == "checker":
            raise _Unsuited("its outputs need a checker")
        try:
            output_rule(problem.comparison)
        except DataError as error:
            raise _Unsuited(str(error)) from None
    names = _required(problem)
    # A test's computing time, with some slack for a slow machine.
    longest_s = min(problem.limits.wall_s, 2 * problem.limits.cpu_s) + _START_S
    budget_s = min(_MOST_S, longest_s * len(problem.hidden_tests))
    source, _, number = problem.id.partition("/")
    metadata = {
        EXPORTED: problem.id, "split": problem.split,
        RANGE_KEY: [0.0, 1.0], **({"tags": list(problem.tags)} if problem.tags else {}),
        **({} if problem.difficulty is None else {"difficulty": problem.difficulty}),
    }  # fmt: skip
    config = TaskConfig(
        task=Package(name=f"{source}/{number.replace('/', '-')}"),
        metadata=metadata,
        artifacts=(Artifact(source=PROGRAM),),
        verifier=VerifierConfig(
            timeout_sec=budget_s + _SPARE_S, environment_mode=VerifierMode.separate
        ),
    )
    files = {
        "instruction.md": instruction(problem, names),
        "environment/Dockerfile": DOCKERFILE,
        "solution/solution.py": with_prelude(problem.prelude, problem.gold[0]),
        "solution/solve.sh": _SOLVE.format(program=PROGRAM),
        "tests/test.sh": TEST,
        "tests/cases.json": json.dumps(_cases(problem, budget_s), sort_keys=True, indent=1) + "\n",
    }
    return config, files


def instruction(problem: Problem, names: list[str] | None = None) -> str:
    """Return the statement without its tests, and the request for the program's file and names.

    Args:
        names: names that the program must define; by default those that the tests use.
    """
    names = _required(problem) if names is None else names
    if names:
        asked = " and ".join(f"`{name}`" for name in names)
        request = f"Write a Python module to `{PROGRAM}` that defines {asked}."
    else:
        request = (
            f"Write a Python program to `{PROGRAM}` that reads standard input and prints its answer "
            "to standard output."
        )
    return f"{without_tests(problem.statement).strip()}\n\n{request}\n"


def _required(problem: Problem) -> list[str]:
    """Return the first gold program's functions and classes that tests use, with their arguments.

    Returns:
        Such as "solve(xs)" or "class Pair(a, b)", in the reference's order; none for a script.
    """
    tree = ast.parse(problem.gold[0])
    used = {name for test in problem.hidden_tests for name in _names_of(test)}
    return [
        _signature(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name in used
    ]


def _names_of(test: Test) -> set[str]:
    match test.input:
        case Call(function=name):
            return {name.partition(".")[0], "Solution"}
        case Asserts(source=source, entry_point=name):
            found = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
            return found | ({name.partition(".")[0]} if name else set())
        case _:
            return set()


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        inner = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        first = next((one for one in inner if one.name == "__init__"), None)
        own = [one.name for one in inner if not one.name.startswith("_")]
        methods = f" with {', '.join(own)}" if own else ""
        return f"class {node.name}({_arguments_of(first, skip=1) if first else ''}){methods}"
    return f"{node.name}({_arguments_of(node)})"


def _arguments_of(node: ast.FunctionDef | ast.AsyncFunctionDef, skip: int = 0) -> str:
    return ", ".join(ast.unparse(node.args).split(", ")[skip:])


def _cases(problem: Problem, budget_s: float) -> dict[str, Any]:
    """Return the content of cases.json, with the wall seconds for all tests."""
    return {
        "limits": asdict(problem.limits),
        "comparison": problem.comparison,
        "tolerance": {"atol": problem.atol, "rtol": problem.rtol},
        "budget_s": budget_s,
        "isolation": problem.isolation,
        "tests": [test_to_json(test) for test in problem.hidden_tests],
    }


@cache
def judge() -> bytes:
    """Return the judging modules as an importable archive. The same sources give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, source in carried(_JUDGE).items():
            entry = zipfile.ZipInfo(path)  # its date is always 1980, so bytes are reproducible
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED)
            entry = zipfile.ZipInfo(f"{path}c")
            archive.writestr(entry, _byte_code(path, source.encode()), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _byte_code(path: str, source: bytes) -> bytes:
    """Return a module's byte code, which only this version of Python loads; others use the source."""
    code = compile(source, f"<{path}>", "exec", dont_inherit=True, optimize=0)
    is_hashed = (1).to_bytes(4, "little")
    # Format 2 has no references: their presence depends on who else holds a constant.
    return MAGIC_NUMBER + is_hashed + source_hash(source) + marshal.dumps(code, 2)
