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
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from coding_model_project.codec import from_json
from coding_model_project.errors import CodingModelError, OverloadError
from coding_model_project.grading.compare import inputs_of, is_right
from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Tier
from coding_model_project.isolation.proc_files import oom_kills
from coding_model_project.sandbox.carried import driver
from coding_model_project.sandbox.carried.messages import (
    Request,
    Task,
    Unseen,
    executions_of,
    for_driver,
    worth_importing,
)
from coding_model_project.types import (
    Asserts,
    Call,
    Isolation,
    Limits,
    Problem,
    Program,
    Status,
    Stdin,
    Test,
)

CPU_GRACE = 2
"""Factor on a problem's CPU time: tasks run on machines where its limits were not measured."""


def problem_of(cases: Mapping[str, Any]) -> Problem:
    """Return the problem in the content of cases.json.

    Its tests are those of our rows (`data.problems`). The verifier carries this reader, and not theirs
    with its messages for people.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    limits = cases["limits"]
    return Problem(
        id="exported/1",
        split="train",
        statement="",
        limits=Limits(**{**limits, "cpu_s": limits["cpu_s"] * CPU_GRACE}),
        comparison=cases["comparison"],
        **cases["tolerance"],
        isolation=Isolation(cases["isolation"]),
        tests=tuple(map(_test, cases["tests"])),
    )


def _test(case: Mapping[str, Any]) -> Test:
    if "stdin" in case:
        return Test(Stdin(case["stdin"]), expected=case["expected"])
    if "call" in case:
        arguments = tuple(map(from_json, case["args"]))
        return Test(Call(case["call"], arguments), expected=from_json(case["expected"]))
    return Test(Asserts(case["asserts"], case["entry_point"]))


PROGRAM_BYTES = 4 << 20


def main(arguments: list[str]) -> NoReturn:
    """Judge, write the reward and end the process.

    If judging fails, no reward file is written, and Harbor records an error.
    """
    cases_file, solution, logs = arguments
    sys.stdout.reconfigure(errors="backslashreplace")  # pyrefly: ignore[missing-attribute]
    tier = _tier()
    channel, pid = driver.start_zygote(tier, silent=False)
    with open(cases_file, "rb") as file:
        cases = json.loads(file.read())
    os.unlink(cases_file)
    os.makedirs(logs, exist_ok=True)
    problem = problem_of(cases)
    failures: list[str | None]
    if (source := _program(solution)) is None:
        failures = [f"{solution} is missing, too large, or not UTF-8" for _ in problem.tests]
    else:
        try:
            failures = _failures(problem, source, cases["budget_s"], channel, tier)
        except (driver.Lost, Unseen, CodingModelError, OSError, EOFError) as error:
            raise OSError(f"the sandbox failed: {error}") from error
    os.kill(pid, signal.SIGKILL)  # and with it all that it forked
    os.wait()
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
    if not os.path.isfile(path) or (size := os.path.getsize(path)) > PROGRAM_BYTES:
        return None
    try:
        with open(path, "rb") as file, suppress(UnicodeDecodeError):
            return file.read(size).decode()
    except OSError:  # a link may lead to a file of the kernel, which not even root can read
        if not os.path.islink(path):
            raise
    return None


def _failures(
    problem: Problem, source: str, budget_s: float, channel: Any, tier: Tier
) -> list[str | None]:
    """Run the program, and return why each test failed, or None if it passed.

    An answer is judged when it comes: all of them may be larger than memory. The time that this takes
    counts, too.

    Raises:
        driver.Lost, Unseen, OSError, EOFError: the sandbox failed.
        OverloadError: the machine is too busy, or has too little memory.
        DataError: the tests cannot be judged.
    """
    inputs = tuple(inputs_of(problem.tests, problem.isolation))
    task = Task(program=Program(source=source), inputs=inputs, limits=problem.limits)
    preload = worth_importing([task])
    given = for_driver(Request(secret=b"", tasks=(task,), budget_s=budget_s, preload=preload))
    n_killed = oom_kills()
    runner = driver.Driver(channel, given, tier, math.inf)
    runner.start()
    failures: list[str | None] = []
    for execution in executions_of(runner.frames(given["programs"][0]), task):
        if execution.status is Status.killed and oom_kills() > n_killed:
            raise OverloadError("the machine ran out of memory: the kernel killed a program")
        finished = execution.status is Status.finished
        passed = finished and is_right(problem.tests[len(failures)], execution, problem)
        failures.append(None if passed else "wrong_answer" if finished else str(execution.status))
    lacking = len(problem.tests) - len(failures)
    return [*failures, *["the time for all tests is used up"] * lacking]


def _write(path: str, text: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
