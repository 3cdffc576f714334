"""CPU time of an exported task's verifier, beside that of an interpreter that does nothing.

    python -m tests.bench.exported [rounds] [python]

Each round runs the verifier of every task once. Times are of all processes of `test.sh`, the median
and the least of the rounds, in ms; the ratio is that of the medians.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from coding_model_project.harbor.export.exporting import export
from coding_model_project.types import Asserts, Call, Limits, Problem, Stdin, Test

LIMITS = Limits(cpu_s=2.0, wall_s=6.0, output_kb=64)
TESTS = (1, 5, 10, 20)
FORMS = ("stdin", "call", "asserts")
GOLD = {
    "stdin": "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n",
    "call": "def add(a, b):\n    return a + b\n",
    "asserts": "def add(a, b):\n    return a + b\n",
}
BARE = "python -c pass"


def problem(form: str, n_tests: int) -> Problem:
    """Return a problem that adds two numbers."""
    tests = {
        "stdin": lambda k: Test(Stdin(f"1 {k}\n"), expected=f"{k + 1}\n"),
        "call": lambda k: Test(Call("add", (1, k)), expected=k + 1),
        "asserts": lambda k: Test(Asserts(f"assert add(1, {k}) == {k + 1}", "add")),
    }
    return Problem(
        id=f"bench/{form}-{n_tests}", split="train", statement="Add.", limits=LIMITS,
        gold=(GOLD[form],), tests=tuple(map(tests[form], range(n_tests))),
    )  # fmt: skip


def cpu_ms(command: Sequence[str | Path], path: str) -> float:
    """Return the CPU time of a command and its children, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = done.stdout.split()
    assert not words or words[0] == words[2], done.stdout
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(
    folder: Path,
    rounds: int,
    python: str,
    forms: Sequence[str] = FORMS,
    sizes: Sequence[int] = TESTS,
) -> dict[str, list[float]]:
    """Measure CPU times in ms by command."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(python)
    path = f"{folder}/bin:{os.defpath}"
    scripts: dict[str, Path] = {}
    for form in forms:
        for n_tests in sizes:
            (task,) = export([problem(form, n_tests)], folder).tasks
            script = scripts[f"{form}, {n_tests} tests"] = task / "tests" / "test.sh"
            text = script.read_text().replace("/app/solution.py", f"{task}/solution/solution.py")
            script.write_text(text.replace("/logs/verifier", f"{task}/logs"))
    cases = {name: (script.parent / "cases.json").read_bytes() for name, script in scripts.items()}
    found: dict[str, list[float]] = {BARE: [], **{name: [] for name in scripts}}
    for _ in range(rounds):
        found[BARE].append(cpu_ms([f"{folder}/bin/python3", "-c", "pass"], path))
        for name, script in scripts.items():
            (script.parent / "cases.json").write_bytes(cases[name])
            found[name].append(cpu_ms(["bash", script], path))
    return found


def main(rounds: int, python: str) -> None:
    with TemporaryDirectory(prefix="bench-exported-") as folder:
        found = measure(Path(folder), rounds, python)
    bare = statistics.median(found[BARE])
    for name, values in found.items():
        median = statistics.median(values)
        print(f"{name:20} {median:7.1f} {min(values):7.1f} {median / bare:6.1f} x")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 15,
        os.path.realpath(sys.argv[2] if len(sys.argv) > 2 else sys.executable),
    )
