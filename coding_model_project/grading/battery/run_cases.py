"""A runner of battery cases, one after another, that reports unmet requirements."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from coding_model_project import codec
from coding_model_project.errors import UngradableError
from coding_model_project.grading.battery import bait
from coding_model_project.grading.battery.battery_cases import Case, Require
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.sandbox.base import Sandbox, StopWhen
from coding_model_project.types import Execution, Input, Limits, Problem, Program, Stdin, Test

ACCEPTED = "accepted"

_HONEST = "a, b = map(int, input().split())\nprint(a * b)"
_HONEST_PROBLEM = Problem(
    id="battery/honest",
    split="test",
    statement="Multiply two numbers.",
    tests=(Test(input=Stdin("6 7\n"), expected="42\n"),),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a case; it passed if no requirement is unmet."""

    case: Case
    verdict: str
    seconds: float
    unmet: tuple[str, ...]
    """Names of unmet requirements, each with the observation."""

    @property
    def only_files(self) -> bool:
        """True if new files are the only unmet requirement."""
        return bool(self.unmet) and all(name.startswith("no_new_files") for name in self.unmet)

    @property
    def succeeded(self) -> bool:
        """True if an attack gained anything beyond a different verdict."""
        return any(not unmet.startswith("verdict_in") for unmet in self.unmet)


def summary(outcomes: Sequence[Outcome], tier: str) -> dict[str, Any]:
    """Return the counts for the command's last line."""
    attacks = [o for o in outcomes if o.case.attack]
    controls = [o for o in outcomes if o.case.control]
    return {
        "cases": len(outcomes),
        "passed": sum(not o.unmet for o in outcomes),
        "failed": [o.case.id for o in outcomes if o.unmet],
        "attacks": len(attacks),
        "attacks_succeeded": sum(o.succeeded for o in attacks),
        "controls": len(controls),
        "controls_failed": sum(bool(o.unmet) for o in controls),
        "tier": tier,
    }


async def run_battery(
    cases: Sequence[Case], sandbox: Sandbox, done: Callable[[Outcome], object] = lambda _: None
) -> tuple[list[Outcome], str]:
    """Start the sandbox and run the cases in it, one after another.

    Returns:
        The outcomes, and the sandbox's identity.

    Raises:
        SandboxError: the sandbox does not start, or another battery runs on this machine.
    """
    secret_of_sandbox = secrets.token_hex(16)
    outcomes = []
    with (
        bait.marked(),
        bait.environment("SBX_CANARY", secret_of_sandbox),
    ):  # the sandbox may inherit these variables
        async with sandbox:
            recorder = _Recorder(sandbox)
            grader = ExecutionGrader(recorder, stop_early=True)
            for case in cases:
                outcome = await _run_case(case, recorder, grader, secret_of_sandbox)
                if outcome.only_files:  # other processes of this machine write there too
                    outcome = await _run_case(case, recorder, grader, secret_of_sandbox)
                outcomes.append(outcome)
                done(outcomes[-1])
            return outcomes, sandbox.identity


@dataclass
class _Recorder:
    """A sandbox that records the output of programs, which verdicts do not keep."""

    sandbox: Sandbox
    printed: list[str] = field(default_factory=list)

    @property
    def identity(self) -> str:
        return self.sandbox.identity

    async def __aenter__(self) -> _Recorder:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        executions = await self.sandbox.run(program, inputs, limits, stop_when=stop_when)
        for execution in executions:
            value = codec.dumps(execution.value).decode()  # repr may fail: too many digits
            self.printed += [execution.stdout, execution.stderr_tail, value]
        return executions


async def _run_case(
    case: Case, recorder: _Recorder, grader: ExecutionGrader, secret_of_sandbox: str
) -> Outcome:
    secret = secrets.token_hex(16)
    files = bait.files() if case.require.no_new_files else set()
    before = bait.processes()
    recorder.printed.clear()
    unmet: list[str] = []
    with bait.lay_out(secret) as touched:
        started = time.monotonic()
        try:
            verdict = await grader.grade_code(case.problem, case.code)
            name = ACCEPTED if verdict.passed else str(verdict.error)
        except UngradableError as error:
            name = f"no verdict: {error}"
        seconds = time.monotonic() - started
        printed = "\n".join(recorder.printed)
        if left := await bait.left_of(before):
            unmet.append(f"no_leftover_process: {', '.join(left)}")
        then = await _then(case, recorder)
        if hits := touched():
            unmet.append(f"no_listener_hit: {', '.join(hits)}")
    if case.require.no_new_files and (new := sorted(bait.files() - files)):
        unmet.append(f"no_new_files: {', '.join(new[:5])}")
    if not await _alive(grader):
        unmet.append("judge_alive: an honest program fails now")
    return Outcome(
        case=case,
        verdict=name,
        seconds=seconds,
        unmet=(
            *_unmet(case.require, name, seconds, printed, then),
            *(["no_canary: the secret was seen"] if secret in printed + then else []),
            *(
                ["no_canary: a former secret was seen"]
                if secret_of_sandbox in printed + then
                else []
            ),
            *unmet,
        ),
    )


def _unmet(
    require: Require, verdict: str, seconds: float, printed: str, then: str
) -> Iterator[str]:
    if (verdict == ACCEPTED) != (require.reward == 1):
        yield f"reward: {verdict}"
    if verdict not in require.verdict_in:
        yield f"verdict_in: {verdict}"
    if seconds > require.terminate_s:
        yield f"terminate_s: {seconds:.1f}"
    for text in require.forbid_stdout:
        if text in printed:
            yield f"forbid_stdout: {text!r}"
    for text in require.then_forbid_stdout:
        if text in then:
            yield f"then_forbid_stdout: {text!r}"


async def _then(case: Case, recorder: _Recorder) -> str:
    """Return the output of the case's second program, run after the first."""
    if case.then is None:
        return ""
    try:
        executions = await recorder.run(Program(source=case.then), [Stdin("")], case.problem.limits)
    except UngradableError as error:
        return f"no verdict: {error}"
    return "".join(execution.stdout for execution in executions)


async def _alive(grader: ExecutionGrader) -> bool:
    try:
        return (await grader.grade_code(_HONEST_PROBLEM, _HONEST)).passed
    except UngradableError:
        return False
