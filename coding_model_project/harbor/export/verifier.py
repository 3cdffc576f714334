"""In an exported task: the verifier. Judges a program by the same rules as `coding_model_project`.

    check CASES SOLUTION LOGS      reads cases.json and the program, writes reward.json and reward.txt

Each test runs the program in a process of its own, by another user where this one may choose, with
nothing but the test's input. The answers are compared here. The cases leave the disk before anything
runs, and whatever the program started is ended before a reward is written. Needs Python 3.11 and no
network; runs nothing else of the package.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from coding_model_project.codec import from_json
from coding_model_project.grading.compare import Tolerance, same_output, same_value
from coding_model_project.harbor.export.inner import PROGRAM_FILE, hide
from coding_model_project.sandbox.embedded.answers import decode

_ENV = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
_IMPORT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from coding_model_project.harbor.export.inner import main; "
    "del sys.path[0]; main(sys.argv[2:])"
)
_START = [sys.executable, "-s", "-P", "-B", "-c", _IMPORT, str(Path(__file__).parents[3])]
"""How `inner` is started, which finds this package where it lies here."""
_NOBODY = 65534
_PR_SET_CHILD_SUBREAPER = 36
_HIGH = 20
"""Descriptors for children are numbered from here, out of the way of those they will have there."""
_ADDRESS_MB = 512
"""Address space on top of a problem's memory: the interpreter's, and what is mapped and never used."""
_PROGRAM_BYTES = 4 << 20
_CPU_GRACE = 2
"""A task runs on machines that the problem's limits were not measured on."""


def main(arguments: list[str]) -> None:
    """Judge, and write the reward.

    Without a reward file Harbor records an error, as it should where this fails to judge.
    """
    cases_file, solution, logs = map(Path, arguments)
    cases = json.loads(cases_file.read_bytes())
    cases_file.unlink()
    hide()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if solution.is_file() and solution.stat().st_size <= _PROGRAM_BYTES:
        reasons = list(_judged(cases, solution.read_bytes()))
    else:
        print(f"{solution} is missing or too large")  # noqa: T201 - goes to test-stdout.txt
        reasons = ["no program"] * len(cases["tests"])
    _end_children()
    n_passed = sum(reason is None for reason in reasons)
    for number, reason in enumerate(reasons):
        if reason is not None:
            print(f"test {number}: {reason}")  # noqa: T201
    print(f"{n_passed} of {len(reasons)} tests passed")  # noqa: T201
    reward = float(n_passed == len(reasons))
    _write(
        logs / "reward.json", json.dumps({"reward": reward, "pass_rate": n_passed / len(reasons)})
    )
    _write(logs / "reward.txt", f"{reward}\n")


def _judged(cases: Mapping[str, Any], source: bytes) -> Iterator[str | None]:
    """Per test, why it failed, or None."""
    ends = time.monotonic() + cases["budget_s"]
    runner = _Runner(source, cases)
    for tests in _together(cases):
        left = ends - time.monotonic()
        if left <= 0:
            yield from ["the time for all tests is used up"] * len(tests)
            continue
        yield from runner.reasons(tests, min(left, len(tests) * cases["limits"]["wall_s"]))


def _together(cases: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """The tests, in order; asserts that share their state in one list."""
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
    """Runs one program on tests."""

    def __init__(self, source: bytes, cases: Mapping[str, Any]) -> None:
        self._source, self._limits = source, cases["limits"]
        self._comparison = cases["comparison"]
        self._tolerance = Tolerance(**cases["tolerance"])
        self._max_bytes = self._limits["output_kb"] << 10
        self._user = _other_user()

    def reasons(self, tests: Sequence[Mapping[str, Any]], wall_s: float) -> list[str | None]:
        """Why the program fails each of the tests, which are one, or asserts that share their state.

        None for a test that it passes.
        """
        test, found = tests[0], list[str | None]()
        with suppress(subprocess.TimeoutExpired), self._folder() as folder:
            if "stdin" in test:
                return [self._script(folder, test, wall_s)]
            if "call" in test:
                return [self._call(folder, test, wall_s)]
            self._asserts(folder, tests, wall_s, found)
        return [*found, *["timeout"] * (len(tests) - len(found))]

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """A folder with the program; whatever was started in it is ended before it goes."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o777)
            (folder / PROGRAM_FILE).write_bytes(self._source)
            try:
                yield folder
            finally:
                _end_children()

    def _script(self, folder: Path, test: Mapping[str, Any], wall_s: float) -> str | None:
        with _files(test["stdin"].encode(), b"") as (given, output):
            code = self._start(folder, "script", given, output, ()).wait(wall_s)
            answer = _content(output, self._max_bytes)
        if code != 0 or answer is None:
            return _ended(code, answer)
        printed = answer.decode("utf-8", "replace")
        same = same_output(test["expected"], printed, self._comparison, self._tolerance)
        return None if same else "wrong answer"

    def _call(self, folder: Path, test: Mapping[str, Any], wall_s: float) -> str | None:
        asked = json.dumps({"call": test["call"], "args": {"t": test["args"]}}).encode()
        with _files(asked, b"") as (given, output):
            process = self._start(folder, "call", given, subprocess.DEVNULL, (output,))
            code = process.wait(wall_s)
            answer = _content(output, self._max_bytes)
        if code != 0 or answer is None:
            return _ended(code, answer)
        value = decode(answer, self._max_bytes)
        same = same_value(from_json(test["expected"]), value, self._tolerance)
        return None if same else "wrong answer"

    def _asserts(
        self,
        folder: Path,
        tests: Sequence[Mapping[str, Any]],
        wall_s: float,
        found: list[str | None],
    ) -> None:
        """Append why each fails to `found`, those that ran before a time-out too."""
        asked = {
            "sources": [test["asserts"] for test in tests],
            "entry_point": tests[0].get("entry_point"),
            "max_bytes": self._max_bytes,
        }
        with _files(json.dumps(asked).encode(), b"") as (given, answer):
            to_program, to_tests = os.pipe(), os.pipe()
            none = subprocess.DEVNULL
            descriptors = (to_program[0], to_tests[1])
            self._start(folder, "callee", none, none, descriptors)
            descriptors = (answer, to_tests[0], to_program[1])
            process = self._start(folder, "tests", given, none, descriptors, trusted=True)
            for descriptor in (*to_program, *to_tests):
                os.close(descriptor)
            try:
                process.wait(wall_s)
            finally:
                for line in (_content(answer, self._max_bytes) or b"").splitlines():
                    said = json.loads(line)
                    why = f"{said.get('failed', 'raised')} {said.get('line', '')}".strip()
                    found.append(None if said.get("passed") is True else why)
            found += ["raised"] * (len(tests) - len(found))

    def _start(
        self,
        folder: Path,
        mode: str,
        stdin: int,
        stdout: int,
        descriptors: Iterable[int],
        *,
        trusted: bool = False,
    ) -> subprocess.Popen[Any]:
        high = [fcntl.fcntl(one, fcntl.F_DUPFD, _HIGH) for one in descriptors]
        cpu_s = self._limits["cpu_s"] * _CPU_GRACE
        memory_mb = self._limits["memory_mb"] + _ADDRESS_MB
        numbers = [cpu_s, memory_mb, self._limits["output_kb"], *high]
        try:
            return subprocess.Popen(
                [*_START, mode, *map(str, numbers)],
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.DEVNULL,
                pass_fds=high,
                cwd=folder,
                env=_ENV,
                start_new_session=True,
                **({} if trusted else self._user),
            )
        finally:
            for one in high:
                os.close(one)


def _ended(code: int, answer: bytes | None) -> str:
    if answer is None:
        return "output limit"
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"


@contextmanager
def _files(*contents: bytes) -> Iterator[list[int]]:
    """Open files that have no name, each at its start. Not pipes, which a child's child holds open."""
    with ExitStack() as stack:
        descriptors = []
        for content in contents:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(content)
            file.seek(0)
            descriptors.append(file.fileno())
        yield descriptors


def _content(descriptor: int, max_bytes: int) -> bytes | None:
    """What was written into a file; None if that is too much."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0) if size <= max_bytes else None


def _other_user() -> dict[str, Any]:
    """How to start a process as nobody, if this one may."""
    other: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    try:
        done = subprocess.run([*_START, "nothing"], env=_ENV, check=False, **other)
    except (OSError, subprocess.SubprocessError):
        return {}
    return other if done.returncode == 0 else {}


def _end_children() -> None:
    """Kill all that was started from here, daemons too: they are this process's once orphaned."""
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        alive = _children()
        if not alive:
            return
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _children() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.append(int(path.parent.name))
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
