"""A strict reader of battery cases: an unknown requirement is an error, not an unchecked one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.grading.wellformed import is_number, is_positive
from coding_model_project.types import Asserts, Call, Input, Limits, Problem, Stdin, Test


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
            cases.append(_case(json.loads(line)))
        except _Malformed as error:
            raise ConfigError(f"{path}:{number}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from None
        if cases[-1].id in {case.id for case in cases[:-1]}:
            raise ConfigError(f"{path}:{number}: id: {cases[-1].id!r} occurs twice")
    if not cases:
        raise ConfigError(f"{path}: no cases")
    return tuple(cases)


class _Malformed(Exception):
    """A malformed case. Names the field."""


def _case(row: Any) -> Case:
    if not isinstance(row, dict):
        raise _Malformed("expected a JSON object")
    mode = _get(row, "mode", str)
    if mode not in ("stdio", "call", "assert"):
        raise _Malformed(f"mode: {mode!r}: expected stdio, call or assert")
    entry = _get(row, "entry", str, optional=mode != "call")
    limits = _get(row, "limits", dict)
    tests = _get(row, "tests", list)
    if not tests:
        raise _Malformed("tests: expected at least one")
    name = _get(row, "id", str)
    return Case(
        id=name,
        category=_get(row, "category", str),
        code=_get(row, "code", str),
        then=_get(row, "then", str, optional=True),
        problem=Problem(
            id=f"battery/{name}",
            split="test",
            statement="",
            tests=tuple(_test(test, mode, entry, f"tests[{i}]") for i, test in enumerate(tests)),
            limits=Limits(
                cpu_s=_positive(limits, "cpu"),
                wall_s=_positive(limits, "wall"),
                memory_mb=int(_positive(limits, "mem_mb")),
                output_kb=max(1, int(_positive(limits, "out_bytes")) >> 10),
            ),
            entry_point=entry,
        ),
        require=_require(_get(row, "require", dict)),
    )


def _get(row: Mapping[str, Any], name: str, kind: type, *, optional: bool = False) -> Any:
    value = row.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, kind):
        found = "missing" if name not in row else f"{value!r}: expected {kind.__name__}"
        raise _Malformed(f"{name}: {found}"[:200])
    return value


def _positive(limits: Mapping[str, Any], name: str) -> float:
    value = limits.get(name)
    if not is_positive(value):
        raise _Malformed(f"limits.{name}: {value!r}: expected a positive number")
    return value


def _test(row: Any, mode: str, entry: str | None, where: str) -> Test:
    given: Input
    if mode == "assert":
        if not isinstance(row, str):
            raise _Malformed(f"{where}: expected a string of asserts")
        return Test(input=Asserts(source=row, entry_point=entry))
    if not isinstance(row, dict) or not {"input", "expected"} <= row.keys():
        raise _Malformed(f"{where}: expected an object with input and expected")
    if mode == "stdio":
        if not isinstance(row["input"], str) or not isinstance(row["expected"], str):
            raise _Malformed(f"{where}: mode stdio expects strings for input and expected")
        given = Stdin(row["input"])
    else:
        if not isinstance(row["input"], list):
            raise _Malformed(f"{where}.input: expected a list of arguments")
        given = Call(function=str(entry), args=tuple(row["input"]))
    return Test(input=given, expected=row["expected"])


_FLAGS = frozenset(
    ("no_canary", "no_listener_hit", "no_leftover_process", "judge_alive", "next_run_ok")
)
"""Requirements that apply to every case, whether it names them or not."""


def _require(row: Mapping[str, Any]) -> Require:
    known = {"reward", "verdict_in", "terminate_s", "no_new_files"} | _FLAGS
    known |= {"forbid_stdout", "then_forbid_stdout"}
    for name in row.keys() - known:
        raise _Malformed(f"require.{name}: unknown")
    if row.get("reward") not in (0, 1):
        raise _Malformed(f"require.reward: {row.get('reward')!r}: expected 0 or 1")
    for name in ("verdict_in", "forbid_stdout", "then_forbid_stdout"):
        texts = row.get(name, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise _Malformed(f"require.{name}: expected a list of strings")
    if not row.get("verdict_in"):
        raise _Malformed("require.verdict_in: missing")
    terminate_s = row.get("terminate_s")
    if not is_number(terminate_s):
        raise _Malformed(f"require.terminate_s: {terminate_s!r}: expected a number")
    return Require(
        reward=int(row["reward"]),
        verdict_in=tuple(row["verdict_in"]),
        terminate_s=terminate_s,
        no_new_files=bool(row.get("no_new_files")),
        forbid_stdout=tuple(row.get("forbid_stdout", ())),
        then_forbid_stdout=tuple(row.get("then_forbid_stdout", ())),
    )
