"""A strict reader of battery cases: an unknown requirement is an error, not an unchecked one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PositiveFloat, TypeAdapter, ValidationError

from coding_model_project.errors import ConfigError
from coding_model_project.types import Asserts, Call, Limits, Problem, Stdin, Test


class _Object(BaseModel, strict=True, frozen=True, extra="forbid"):
    pass


class Require(_Object):
    """The requirements on a case. The last five apply to every case, whether it names them or not."""

    reward: Literal[0, 1]
    verdict_in: tuple[str, ...] = Field(min_length=1)
    terminate_s: float
    no_new_files: bool = False
    forbid_stdout: tuple[str, ...] = ()
    then_forbid_stdout: tuple[str, ...] = ()
    no_canary: bool = True
    no_listener_hit: bool = True
    no_leftover_process: bool = True
    judge_alive: bool = True
    next_run_ok: bool = True


class _Limits(_Object):
    cpu: PositiveFloat
    wall: PositiveFloat
    mem_mb: PositiveFloat
    out_bytes: PositiveFloat


class _Printed(_Object):
    input: str
    expected: str


class _Called(_Object):
    input: tuple[Any, ...]
    expected: Any


class Case(BaseModel, ABC, strict=True, frozen=True):
    """One program and its requirements. Fields of a line that it does not know are left out."""

    id: str
    category: str
    code: str
    entry: str | None = None
    then: str | None = None
    limits: _Limits
    require: Require

    @property
    def control(self) -> bool:
        """True if the program is honest and right, so that rejecting it is the judge's fault."""
        return self.require.reward == 1

    @property
    def attack(self) -> bool:
        """True if the program is adversarial. Edge cases are neither attack nor control."""
        return not self.control and self.category not in ("edge", "control")

    @cached_property
    def problem(self) -> Problem:
        """The problem that the program answers."""
        limits = Limits(
            cpu_s=self.limits.cpu,
            wall_s=self.limits.wall,
            memory_mb=int(self.limits.mem_mb),
            output_kb=max(1, int(self.limits.out_bytes) >> 10),
        )
        tests, entry = tuple(self._tests()), self.entry
        return Problem(
            id=f"battery/{self.id}",
            split="test",
            statement="",
            tests=tests,
            limits=limits,
            entry_point=entry,
        )

    @abstractmethod
    def _tests(self) -> Iterator[Test]: ...


class _Stdio(Case):
    mode: Literal["stdio"]
    tests: tuple[_Printed, ...] = Field(min_length=1)

    def _tests(self) -> Iterator[Test]:
        return (Test(Stdin(one.input), expected=one.expected) for one in self.tests)


class _Calls(Case):
    mode: Literal["call"]
    entry: str
    tests: tuple[_Called, ...] = Field(min_length=1)

    def _tests(self) -> Iterator[Test]:
        return (Test(Call(self.entry, one.input), expected=one.expected) for one in self.tests)


class _Assertions(Case):
    mode: Literal["assert"]
    tests: tuple[str, ...] = Field(min_length=1)

    def _tests(self) -> Iterator[Test]:
        return (Test(Asserts(source, self.entry)) for source in self.tests)


_READ: TypeAdapter[Case] = TypeAdapter(
    Annotated[_Stdio | _Calls | _Assertions, Field(discriminator="mode")]
)


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read the cases of a file.

    Raises:
        ConfigError: a line is malformed; names its number and the field.
    """
    cases: dict[str, Case] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            case = _READ.validate_json(line)
        except ValidationError as error:
            raise ConfigError(f"{path}:{number}: {_fault(error)}") from None
        if case.id in cases:
            raise ConfigError(f"{path}:{number}: id: {case.id!r} occurs twice")
        cases[case.id] = case
    if not cases:
        raise ConfigError(f"{path}: no cases")
    return tuple(cases.values())


def _fault(error: ValidationError) -> str:
    """Return the first error with its field, such as "case.tests[0].input: …"."""
    first = error.errors()[0]
    _mode, *place = first["loc"] or ("",)
    names = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in place)
    field = f"case{''.join(names)}{'.mode' if first['type'].startswith('union_tag') else ''}"
    return f"{field}: {' '.join(first['msg'].split())}"
