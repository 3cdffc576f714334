"""The verifier of an exported task. Judges a program by the same rules as `coding_model_project`.

    verifier CASES SOLUTION LOGS      reads cases.json and the program, writes reward.json and reward.txt

    the verifier: reads the cases, compares answers
      └ the embedded sandbox's zygote, forked before: never has an expected answer
          └ a confined process per input of the program

The cases are deleted from the disk before the program runs, and all its processes have ended before the
reward is written. Needs Python 3.11, no network, and nothing else of the package.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from coding_model_project.grading.answer_rules import inputs_of, is_right
from coding_model_project.harbor.export.cases import problem_of
from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.carried import driver
from coding_model_project.sandbox.embedded import zygote
from coding_model_project.sandbox.fusion.driver_messages import (
    Request,
    Task,
    decode_answer,
    encode_request,
)
from coding_model_project.types import Execution, Problem, Program, Status

PROGRAM_BYTES = 4 << 20


def main(arguments: list[str]) -> NoReturn:
    """Judge, write the reward and end the process.

    If judging fails, no reward file is written, and Harbor records an error.
    """
    cases_file, solution, logs = arguments
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    tier = _tier()
    channel, pid = driver.start_zygote(tier)
    with open(cases_file, "rb") as file:
        cases = json.loads(file.read())
    os.unlink(cases_file)
    os.makedirs(logs, exist_ok=True)
    with suppress(OSError):  # programs that run as another user shall not write there
        os.chmod(logs, 0o755)
    problem = problem_of(cases)
    executions: Sequence[Execution] = ()
    lacking = "the time for all tests is used up"
    if (source := _program(solution)) is None:
        lacking = f"{solution} is missing, too large, or not UTF-8"
    else:
        executions = _executions(problem, source, cases["budget_s"], channel, tier)
    os.kill(pid, signal.SIGKILL)  # and with it all that it forked
    os.wait()
    failures = list(_failures(problem, executions, lacking))
    for number, failure in enumerate(failures):
        if failure is not None:
            print(f"test {number}: {failure}")  # noqa: T201 - goes to test-stdout.txt
    n_passed = failures.count(None)
    print(f"{n_passed} of {len(failures)} tests passed", flush=True)  # noqa: T201
    rewards = {"reward": float(n_passed == len(failures)), "pass_rate": n_passed / len(failures)}
    _write(f"{logs}/reward.json", json.dumps(rewards))
    _write(f"{logs}/reward.txt", f"{rewards['reward']}\n")
    os._exit(0)  # a normal exit takes longer than a test


def _tier() -> Tier:
    """Return the tier of programs, which must not reach the tests.

    Raises:
        OSError: there is none.
    """
    if linux.landlock_abi():
        return Tier.seccomp
    if driver.can_be_nobody():
        return Tier.rlimit
    raise OSError(
        "programs could read the tests: run the verifier as root, or on a kernel with Landlock"
    )


def _program(path: str) -> str | None:
    """Read the program; None if there is none."""
    if not os.path.isfile(path) or os.path.getsize(path) > PROGRAM_BYTES:
        return None
    with open(path, "rb") as file, suppress(UnicodeDecodeError):
        return file.read().decode()
    return None


def _executions(
    problem: Problem, source: str, budget_s: float, channel: Any, tier: Tier
) -> Sequence[Execution]:
    """Run the program, and return the executions of the first tests.

    Raises:
        OSError: the sandbox failed, or the tests cannot be judged.
    """
    inputs = tuple(inputs_of(problem.tests, problem.isolation))
    task = Task(program=Program(source=source), inputs=inputs, limits=problem.limits)
    preload = (
        name
        for name in zygote.PRELOAD.split()
        if f"import {name}" in source or f"from {name}" in source
    )
    request = Request(
        secret=os.urandom(16), tasks=(task,), budget_s=budget_s, preload=tuple(preload)
    )
    given = json.loads(encode_request(request))
    answer = decode_answer(driver.Driver(channel, given, tier, math.inf).answer(), request)
    (outcome,) = answer.outcomes or (None,)
    if answer.error or outcome is None or outcome.lost or outcome.error:
        raise OSError(f"the sandbox failed: {answer.error or outcome}")
    return outcome.executions


def _failures(
    problem: Problem, executions: Sequence[Execution], lacking: str
) -> Iterator[str | None]:
    """Yield why each test failed, or None if it passed.

    Args:
        lacking: the reason of tests without an execution.
    """
    for test, execution in zip(problem.tests, executions, strict=False):
        if execution.status is not Status.finished:
            yield str(execution.status)
        else:
            yield None if is_right(test, execution, problem) else "wrong_answer"
    yield from [lacking] * (len(problem.tests) - len(executions))


def _write(path: str, text: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
