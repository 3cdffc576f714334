"""A strict reader of battery cases: an unknown requirement is an error, not an unchecked one."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.grading.wellformed import is_number, is_positive
from coding_model_project.row_readers import (
    Malformed,
    Reader,
    fail,
    is_text,
    list_of,
    object_with,
    text,
    text_or_null,
    value_that,
)
from coding_model_project.types import Asserts, Call, Limits, Problem, Stdin, Test


@dataclass(frozen=True, slots=True, kw_only=True)
class Require:
    """The requirements on a case."""

    reward: int
    verdict_in: tuple[str, ...]
    terminate_s: float
    no_new_files: bool = False
    forbid_stdout: tuple[str, ...] = ()
    then_forbid_stdout: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program and its requirements."""

    id: str
    category: str
    code: str
    then: str | None
    problem: Problem
    require: Require

    @property
    def control(self) -> bool:
        """True if the program is honest and right, so that rejecting it is the judge's fault."""
        return self.require.reward == 1

    @property
    def attack(self) -> bool:
        """True if the program is adversarial. Edge cases are neither attack nor control."""
        return not self.control and self.category not in ("edge", "control")


def _anything(value: Any, _path: str) -> Any:
    return value


_POSITIVE = value_that("a positive number", is_positive)
_TEXTS = list_of("texts", text)
_LIMITS = object_with(
    lambda cpu, wall, mem_mb, out_bytes: Limits(
        cpu_s=cpu, wall_s=wall, memory_mb=int(mem_mb), output_kb=max(1, int(out_bytes) >> 10)
    ),
    **dict.fromkeys(("cpu", "wall", "mem_mb", "out_bytes"), _POSITIVE),
)
_FLAGS = ("no_canary", "no_listener_hit", "no_leftover_process", "judge_alive", "next_run_ok")
"""Requirements that apply to every case, whether it names them or not."""

_REQUIRE = object_with(
    Require,
    reward=value_that("0 or 1", lambda value: value in (0, 1), int),
    verdict_in=value_that("verdicts", bool, lambda value: _TEXTS(value, "case.require.verdict_in")),
    terminate_s=value_that("a number", is_number),
    no_new_files=value_that("true or false", lambda value: isinstance(value, bool)),
    forbid_stdout=_TEXTS,
    then_forbid_stdout=_TEXTS,
)


def _require(value: Any, path: str) -> Require:
    is_object = isinstance(value, dict)
    return _REQUIRE(_without(value, _FLAGS) if is_object else value, path)


def _without(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _reader_of_tests(mode: str, entry: str | None) -> Reader:
    if mode == "assert":
        return value_that("asserts", is_text, lambda source: Test(Asserts(source, entry)))
    if mode == "call":
        return object_with(
            lambda input, expected: Test(Call(str(entry), input), expected=expected),
            input=list_of("arguments", _anything),
            expected=_anything,
        )
    return object_with(
        lambda input, expected: Test(Stdin(input), expected=expected), input=text, expected=text
    )


def _case(
    id: str,
    category: str,
    mode: str,
    code: str,
    tests: list[Any],
    limits: Limits,
    require: Require,
    entry: str | None = None,
    then: str | None = None,
) -> Case:
    if mode == "call" and entry is None:
        fail("case.entry", "expected the name of the function that tests call")
    read = list_of("tests", _reader_of_tests(mode, entry))
    return Case(
        id=id,
        category=category,
        code=code,
        then=then,
        require=require,
        problem=Problem(
            id=f"battery/{id}",
            split="test",
            statement="",
            tests=read(tests, "case.tests"),
            limits=limits,
            entry_point=entry,
        ),
    )


_FIELDS: dict[str, Reader] = {
    **dict.fromkeys(("id", "category", "code"), text),
    "mode": value_that("stdio, call or assert", ("stdio", "call", "assert").__contains__),
    "tests": value_that("at least one test", lambda value: isinstance(value, list) and value != []),
    "limits": _LIMITS,
    "require": _require,
    **dict.fromkeys(("entry", "then"), text_or_null),
}
_READ = object_with(_case, **_FIELDS)
"""Reads a case; fields that it does not know are left out before."""


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read the cases of a file.

    Raises:
        ConfigError: a line is malformed; names its number and the field.
    """
    cases: list[Case] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            unknown = row.keys() - _FIELDS if isinstance(row, dict) else ()
            cases.append(_READ(_without(row, unknown) if unknown else row, "case"))
        except Malformed as error:
            raise ConfigError(f"{path}:{number}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from None
        if cases[-1].id in {case.id for case in cases[:-1]}:
            raise ConfigError(f"{path}:{number}: id: {cases[-1].id!r} occurs twice")
    if not cases:
        raise ConfigError(f"{path}: no cases")
    return tuple(cases)
