"""The verifier of an exported task. Judges a program by the same rules as `coding_model_project`.

    check CASES SOLUTION LOGS      reads cases.json and the program, writes reward.json and reward.txt

Each test runs the program in a process of its own, as another user if possible, with only the test's
input. A process that never saw the cases (`forker`) forks these processes, so Python starts once. Answers
are compared here. The cases are deleted from the disk before anything runs, and all processes of the
program are killed before the reward is written. Needs Python 3.11, no network, and nothing else of the
package.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from coding_model_project.codec import from_json
from coding_model_project.grading.compare import Tolerance, same_output, same_value
from coding_model_project.harbor.export import forker, kernel
from coding_model_project.harbor.export.forker import Forker, Job
from coding_model_project.harbor.export.running import Ran, Runner
from coding_model_project.sandbox.embedded.answers import decode

ADDRESS_MB = 512
"""Address space in MiB beyond a problem's memory limit: the interpreter's, and unused mappings."""
PROGRAM_BYTES = 4 << 20
CPU_GRACE = 2
"""Factor on a problem's CPU time: tasks run on machines where its limits were not measured."""


def main(arguments: list[str]) -> NoReturn:
    """Judge, write the reward and end the process.

    If judging fails, no reward file is written, and Harbor records an error.
    """
    cases_file, solution, logs = arguments
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    source = _program(solution)
    started = forker.start(source) if source is not None else None
    if isinstance(started, Job):
        forker.prepare(started)()
    kernel.hide()
    kernel.adopt_orphans()
    with open(cases_file, "rb") as file:
        cases = json.loads(file.read())
    os.unlink(cases_file)
    if source is not None and started is not None:
        reasons = list(_judged(cases, source, started))
        started.end()
    else:
        print(f"{solution} is missing or too large")  # noqa: T201 - goes to test-stdout.txt
        reasons = ["no program"] * len(cases["tests"])
    n_passed = sum(reason is None for reason in reasons)
    for number, reason in enumerate(reasons):
        if reason is not None:
            print(f"test {number}: {reason}")  # noqa: T201
    print(f"{n_passed} of {len(reasons)} tests passed")  # noqa: T201
    reward = float(n_passed == len(reasons))
    os.makedirs(logs, exist_ok=True)
    _write(
        f"{logs}/reward.json", json.dumps({"reward": reward, "pass_rate": n_passed / len(reasons)})
    )
    _write(f"{logs}/reward.txt", f"{reward}\n")
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)  # a normal exit takes longer than a test


def _program(path: str) -> bytes | None:
    """Read the program; None if it is missing or too large."""
    if not os.path.isfile(path) or os.path.getsize(path) > PROGRAM_BYTES:
        return None
    with open(path, "rb") as file:
        return file.read()


def _judged(cases: Mapping[str, Any], source: bytes, started: Forker) -> Iterator[str | None]:
    """Yield why each test failed, or None if it passed.

    Raises:
        Lost: the forker is gone, and the program cannot have caused that.
    """
    ends = time.monotonic() + cases["budget_s"]
    judge = _Judge(source, cases, started)
    for tests in _together(cases):
        left = ends - time.monotonic()
        if left <= 0:
            yield from ["the time for all tests is used up"] * len(tests)
            continue
        yield from judge.reasons(tests, min(left, len(tests) * cases["limits"]["wall_s"]))


def _together(cases: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Group the tests, in order: asserts that share their state are in one list."""
    lists: list[list[Mapping[str, Any]]] = []
    for test in cases["tests"]:
        shares = cases["isolation"] == "shared" and "asserts" in test
        if lists and shares and _shares_with(lists[-1][-1], test):
            lists[-1].append(test)
        else:
            lists.append([test])
    return lists


def _shares_with(before: Mapping[str, Any], test: Mapping[str, Any]) -> bool:
    return "asserts" in before and before.get("entry_point") == test.get("entry_point")


class _Judge:
    """A judge of one program."""

    def __init__(self, source: bytes, cases: Mapping[str, Any], started: Forker) -> None:
        limits = cases["limits"]
        self._runner = Runner(
            source,
            started,
            cpu_s=limits["cpu_s"] * CPU_GRACE,
            memory_mb=limits["memory_mb"] + ADDRESS_MB,
            output_kb=limits["output_kb"],
        )
        self._comparison = cases["comparison"]
        self._tolerance = Tolerance(**cases["tolerance"])

    def reasons(self, tests: Sequence[Mapping[str, Any]], wall_s: float) -> list[str | None]:
        """Return why the program fails each test, or None if it passes.

        Args:
            tests: one test, or asserts that share their state.

        Raises:
            Lost: the forker is gone or stopped, and no program can have caused that.
        """
        test = tests[0]
        if "stdin" in test:
            return [self._script(test, self._runner.script(test["stdin"].encode(), wall_s))]
        if "call" in test:
            return [self._call(test, self._runner.call(test["call"], test["args"], wall_s))]
        sources = [test["asserts"] for test in tests]
        ran = self._runner.asserts(sources, test.get("entry_point"), wall_s)
        found: list[str | None] = []
        for line in (ran.answer or b"").splitlines():
            result = json.loads(line)
            why = f"{result.get('failed', 'raised')} {result.get('line', '')}".strip()
            found.append(None if result.get("passed") is True else why)
        left = _ended(ran) if ran.struck or ran.code is None else "raised"
        return [*found, *[left] * (len(tests) - len(found))]

    def _script(self, test: Mapping[str, Any], ran: Ran) -> str | None:
        if ran.code != 0 or ran.answer is None:
            return _ended(ran)
        printed = ran.answer.decode("utf-8", "replace")
        same = same_output(test["expected"], printed, self._comparison, self._tolerance)
        return None if same else "wrong answer"

    def _call(self, test: Mapping[str, Any], ran: Ran) -> str | None:
        if ran.code != 0 or ran.answer is None:
            return _ended(ran)
        value = decode(ran.answer, self._runner.max_bytes)
        same = same_value(from_json(test["expected"]), value, self._tolerance)
        return None if same else "wrong answer"


def _ended(ran: Ran) -> str:
    if ran.struck:
        return "the program ended its judge"
    if ran.code is None:
        return "timeout"
    if ran.answer is None:
        return "output limit"
    return f"ended by signal {-ran.code}" if ran.code < 0 else f"exit code {ran.code}"


def _write(path: str, text: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
