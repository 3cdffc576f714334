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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from coding_model_project.codec import from_json
from coding_model_project.grading.compare import Tolerance, same_output, same_value
from coding_model_project.harbor.export import forker, inner, kernel
from coding_model_project.harbor.export.forker import Forker, Job, Lost, Process, Request
from coding_model_project.sandbox.embedded.answers import decode

_Made = TypeVar("_Made")

_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
"""Places for a test's folder and files. The first writable one is used."""
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
        inner.prepare(started)()
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
    runner = _Runner(source, cases, started)
    for tests in _together(cases):
        left = ends - time.monotonic()
        if left <= 0:
            yield from ["the time for all tests is used up"] * len(tests)
            continue
        yield from runner.reasons(tests, min(left, len(tests) * cases["limits"]["wall_s"]))


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


class _Runner:
    """A runner of one program on tests."""

    def __init__(self, source: bytes, cases: Mapping[str, Any], started: Forker) -> None:
        self._source, self._limits, self._forker = source, cases["limits"], started
        self._comparison = cases["comparison"]
        self._tolerance = Tolerance(**cases["tolerance"])
        self._max_bytes = self._limits["output_kb"] << 10
        self._ended_its_judge = False

    def reasons(self, tests: Sequence[Mapping[str, Any]], wall_s: float) -> list[str | None]:
        """Return why the program fails each test, or None if it passes.

        Args:
            tests: one test, or asserts that share their state.

        Raises:
            Lost: the forker is gone or stopped, and no program can have caused that.
        """
        found = list[str | None]()
        try:
            if not self._ended_its_judge:
                self._run(tests, wall_s, found)
        except Lost:
            if not self._forker.is_in_reach:
                raise
            self._forker.end()
            self._ended_its_judge = True
        if self._ended_its_judge:
            return ["the program ended its judge"] * len(tests)
        return [*found, *["timeout"] * (len(tests) - len(found))]

    def _run(
        self, tests: Sequence[Mapping[str, Any]], wall_s: float, found: list[str | None]
    ) -> None:
        """Append to `found` why each test fails, for those that ran in time."""
        test = tests[0]
        with suppress(TimeoutError), folder_with(self._source, self._forker) as folder:
            if "stdin" in test:
                found.append(self._script(folder, test, wall_s))
            elif "call" in test:
                found.append(self._call(folder, test, wall_s))
            else:
                self._asserts(folder, tests, wall_s, found)

    def _script(self, folder: str, test: Mapping[str, Any], wall_s: float) -> str | None:
        with in_files(test["stdin"].encode(), b"") as (given, output):
            process = Process("script", (0, 1))
            code = self._forker.run(self._request(folder, wall_s, process), (given, output))
            answer = content_of(output, self._max_bytes)
        if code != 0 or answer is None:
            return _ended(code, answer)
        printed = answer.decode("utf-8", "replace")
        same = same_output(test["expected"], printed, self._comparison, self._tolerance)
        return None if same else "wrong answer"

    def _call(self, folder: str, test: Mapping[str, Any], wall_s: float) -> str | None:
        asked = json.dumps({"call": test["call"], "args": {"t": test["args"]}}).encode()
        with in_files(asked, b"") as (given, output):
            process = Process("call", (0, 3))
            code = self._forker.run(self._request(folder, wall_s, process), (given, output))
            answer = content_of(output, self._max_bytes)
        if code != 0 or answer is None:
            return _ended(code, answer)
        value = decode(answer, self._max_bytes)
        same = same_value(from_json(test["expected"]), value, self._tolerance)
        return None if same else "wrong answer"

    def _asserts(
        self,
        folder: str,
        tests: Sequence[Mapping[str, Any]],
        wall_s: float,
        found: list[str | None],
    ) -> None:
        """Append to `found` why each test fails, including those that ran before a time-out."""
        asked = {
            "sources": [test["asserts"] for test in tests],
            "entry_point": tests[0].get("entry_point"),
            "max_bytes": self._max_bytes,
        }
        with in_files(json.dumps(asked).encode(), b"") as (given, answer):
            to_program, to_tests = os.pipe(), os.pipe()
            callee, tests_own = Process("callee", (3, 4)), Process("tests", (0, 3, 4, 5))
            descriptors = (given, answer, to_tests[0], to_program[1], to_program[0], to_tests[1])
            try:
                self._forker.run(
                    self._request(folder, wall_s, tests_own, callee),
                    descriptors,
                    passed_on=descriptors[2:],
                )
            finally:
                for line in (content_of(answer, self._max_bytes) or b"").splitlines():
                    result = json.loads(line)
                    why = f"{result.get('failed', 'raised')} {result.get('line', '')}".strip()
                    found.append(None if result.get("passed") is True else why)
            found += ["raised"] * (len(tests) - len(found))

    def _request(self, folder: str, wall_s: float, *processes: Process) -> Request:
        return Request(
            folder,
            self._limits["cpu_s"] * CPU_GRACE,
            self._limits["memory_mb"] + ADDRESS_MB,
            self._limits["output_kb"],
            wall_s,
            processes,
        )


def _ended(code: int, answer: bytes | None) -> str:
    if answer is None:
        return "output limit"
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"


@contextmanager
def folder_with(source: bytes, started: Forker) -> Iterator[str]:
    """Yield a folder with the program. All processes of the test end before it is removed."""
    folder = _somewhere(_new_folder)
    try:
        with open(f"{folder}/{inner.PROGRAM_FILE}", "wb") as program:
            program.write(source)
        yield folder
    finally:
        try:
            started.end_tests()
        finally:
            _remove(folder)


def _somewhere(make: Callable[[str], _Made]) -> _Made:
    """Call `make` with a new path in the first of `_FOLDERS` where that works.

    Raises:
        OSError: it fails in all of them.
    """
    name, error = f"test-{os.urandom(8).hex()}", OSError()
    for folder in _FOLDERS:
        try:
            return make(f"{folder}/{name}")
        except OSError as raised:
            error = raised
    raise error


def _new_folder(path: str) -> str:
    os.mkdir(path)
    os.chmod(path, 0o777)
    return path


def _remove(folder: str) -> None:
    """Remove a test's folder as far as possible, in time linear in its size.

    Does not use `shutil`: a module imported after a program has run may be the program's.
    """
    pending = [folder]
    while pending:
        path = pending.pop()
        with suppress(OSError):
            for entry in list(os.scandir(path)):
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)
                    moved = f"{folder}-{os.urandom(8).hex()}"  # no path grows too long
                    os.rename(entry.path, moved)
                    pending.append(moved)
            os.rmdir(path)


def _new_file(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return descriptor


@contextmanager
def in_files(*contents: bytes) -> Iterator[list[int]]:
    """Open unnamed files at their start. Not pipes, which a grandchild could hold open."""
    descriptors = []
    try:
        for content in contents:
            descriptors.append(_somewhere(_new_file))
            with open(descriptors[-1], "wb", closefd=False) as file:
                file.write(content)
            os.lseek(descriptors[-1], 0, os.SEEK_SET)
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def content_of(descriptor: int, max_bytes: int) -> bytes | None:
    """Return a file's content; None if it exceeds `max_bytes`."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size <= max_bytes else None


def _write(path: str, text: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
