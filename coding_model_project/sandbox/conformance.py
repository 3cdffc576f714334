"""The conformance suite of `Sandbox`: cases that every implementation must pass. `check` runs them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.conformance_cases import CASES, LANGUAGES, LIMITS, Case
from coding_model_project.types import Asserts, Call, Execution, Program, Stdin


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that a sandbox fails, and how."""

    case: str
    problem: str

    def __str__(self) -> str:
        return f"{self.case}: {self.problem}"


async def check(sandbox: Sandbox, languages: Sequence[str] = ()) -> list[Finding]:
    """Run every case and scenario on a started sandbox; return those that it fails, in order.

    Args:
        languages: those of `LANGUAGES` that it runs besides Python.
    """
    isolates = "/rlimit/" not in sandbox.identity
    cases = [case for case in CASES if isolates or not case.isolation]
    cases += [case for language in languages for case in LANGUAGES[language]]
    scenarios = [*_SCENARIOS, *([_files_stay_unwritten] if isolates else [])]
    found = await asyncio.gather(
        *(_check_case(sandbox, case) for case in cases),
        *(_check_scenario(sandbox, scenario) for scenario in scenarios),
    )
    return [finding for finding in found if finding is not None]


async def _check_case(sandbox: Sandbox, case: Case) -> Finding | None:
    program = Program(source=case.source, language=case.language)
    executions = await sandbox.run(program, [case.given], case.limits)
    if len(executions) != 1:
        return Finding(case.name, f"{len(executions)} executions of 1 input")
    problem = case.problem(executions[0])
    return Finding(case.name, problem) if problem else None


# ── scenarios with several inputs, or with checks on the host ─────────────────────────────────────

Scenario = Callable[[Sandbox], Awaitable[str | None]]


async def _check_scenario(sandbox: Sandbox, scenario: Scenario) -> Finding | None:
    problem = await scenario(sandbox)
    name = getattr(scenario, "__name__", "scenario").strip("_").replace("_", " ")
    return Finding(name, problem) if problem else None


async def _each_input_has_a_fresh_process(sandbox: Sandbox) -> str | None:
    source = """
import math
seen = getattr(math, "seen", 0)
math.seen = seen + 1
def f(): return seen
"""
    calls = [Call(function="f")] * 3
    values = [e.value for e in await sandbox.run(Program(source=source), calls, LIMITS)]
    return None if values == [0, 0, 0] else f"values {values} instead of zeros"


async def _asserts_that_continue_share_the_state(sandbox: Sandbox) -> str | None:
    program = Program(source="seen = []\ndef f():\n    seen.append(1)\n    return len(seen)")
    tests = [
        Asserts(source=f"assert f() == {expected}", entry_point="f", continues=continues)
        for expected, continues in ((1, False), (2, True), (5, True), (4, True), (1, False))
    ]
    values = [e.value for e in await sandbox.run(program, tests, LIMITS)]
    return _unlike(values, [True, True, "line 1: assert f() == 5", True, True])


async def _stop_when_ends_the_run(sandbox: Sandbox) -> str | None:
    seen: list[tuple[int, str]] = []

    def stop(index: int, execution: Execution) -> bool:
        seen.append((index, execution.stdout))
        return execution.stdout == "b"

    program = Program(source="print(input(), end='')")
    inputs = [Stdin(text) for text in "abcd"]
    executions = await sandbox.run(program, inputs, LIMITS, stop_when=stop)
    if len(executions) != 2 or seen != [(0, "a"), (1, "b")]:
        return f"{len(executions)} executions, stop_when was called with {seen}"
    return None


async def _no_inputs_give_no_executions(sandbox: Sandbox) -> str | None:
    executions = await sandbox.run(Program(source="1 / 0"), [], LIMITS)
    return f"{len(executions)} executions" if executions else None


async def _a_failed_input_does_not_end_the_rest(sandbox: Sandbox) -> str | None:
    program = Program(source="print(1 // int(input()))")
    executions = await sandbox.run(program, [Stdin(n) for n in "101"], LIMITS)
    return _unlike([e.status for e in executions], ["finished", "raised", "finished"])


async def _runs_at_once_do_not_mix(sandbox: Sandbox) -> str | None:
    async def one(n: int) -> list[str]:
        inputs = [Stdin(str(i)) for i in range(3)]
        program = Program(source=f"print({n}, input())")
        return [e.stdout for e in await sandbox.run(program, inputs, LIMITS)]

    answers = await asyncio.gather(*(one(n) for n in range(12)))
    return _unlike(answers, [[f"{n} {i}\n" for i in range(3)] for n in range(12)])


async def _costs_are_measured(sandbox: Sandbox) -> str | None:
    source = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    (execution,) = await sandbox.run(Program(source=source), [Stdin("")], LIMITS)
    if not 0.09 <= execution.cpu_s <= 0.5 or execution.wall_s < 0.09:
        return f"{execution.cpu_s:.3f} s CPU and {execution.wall_s:.3f} s wall for 0.1 s of work"
    return None


async def _files_stay_unwritten(sandbox: Sandbox) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        victim = Path(folder) / "victim"
        victim.write_text("before")
        source = f"""
import os
for attempt in (
    lambda: open({str(victim)!r}, "w").write("after"),
    lambda: open({folder!r} + "/new", "w").close(),
    lambda: os.chmod({str(victim)!r}, 0),
    lambda: os.remove({str(victim)!r}),
):
    try: attempt()
    except OSError: pass
"""
        await sandbox.run(Program(source=source), [Stdin("")], LIMITS)
        mode = victim.stat().st_mode & 0o777 if victim.exists() else None
        names = sorted(path.name for path in Path(folder).iterdir())
        if names != ["victim"] or not mode or victim.read_text() != "before":
            return f"files {names}, mode {mode}"
    return None


def _unlike(found: Sequence[object], expected: Sequence[object]) -> str | None:
    return None if list(found) == list(expected) else f"{found} instead of {expected}"


_SCENARIOS: tuple[Scenario, ...] = (
    _each_input_has_a_fresh_process,
    _asserts_that_continue_share_the_state,
    _stop_when_ends_the_run,
    _no_inputs_give_no_executions,
    _a_failed_input_does_not_end_the_rest,
    _runs_at_once_do_not_mix,
    _costs_are_measured,
)
