"""`harbor eval` with hundreds of concurrent trials: all end, nothing is left, and memory is measured.

    python -m tests.soak.many_trials [TASKS] [CONCURRENCY]

500 tasks and 256 at once by default, against a server of this process that waits as a model does. Every
third attempt is wrong, and must fail; the others must pass. The last line is JSON.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import psutil

from coding_model_project.harbor.outcome import read_trials
from tests.bench.trials import TRIVIAL, write_task
from tests.completion_server import CompletionServer, serving
from tests.soak.remains import Remains

TASKS, CONCURRENCY = 500, 256
ANSWER_S = 1.0
"""The server's delay for a turn of a model."""

LOOK_S = 0.5
DOES = (
    "echo 42 > answer",
    "echo 41 > answer",
    "echo 42 > answer; seq 1 100 | tee numbers | tail -1",
)


def memory_kb(process: psutil.Process) -> int:
    """Return the proportional set size: the memory that the machine really uses; 0 if it has ended."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0


@contextmanager
def watched(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Measure the memory of a process and its descendants inside the context, again and again."""
    ended, root, seen = threading.Event(), psutil.Process(process.pid), [0]

    def look() -> None:
        while not ended.wait(LOOK_S):
            with suppress(psutil.Error):
                family = [root, *root.children(recursive=True)]
                seen.append(sum(map(memory_kb, family)))

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield seen
    finally:
        ended.set()
        watching.join()


def answer(prompt: str, seed: int) -> str:
    """Reply with a command for a task, whose instruction is its number; then with the end."""
    number = prompt.strip()
    return f"```bash\n{DOES[int(number) % 3]}\n```" if number.isdigit() else "Done."


def temporary() -> set[str]:
    """Return this project's names in the folder for temporary files."""
    known = ("rewards-", "rootfs-", "harbor-", "coding-", "sandbox-", "embedded-")
    return {path.name for path in Path(gettempdir()).iterdir() if path.name.startswith(known)}


def main(n_tasks: int, concurrency: int) -> int:
    with TemporaryDirectory(prefix="many-trials-") as place:
        folder = Path(place)
        for number in range(n_tasks):
            files = {**TRIVIAL, "instruction.md": f"{number}\n"}
            write_task(folder / "tasks" / f"t{number:04}", files)
        before, remains, load = temporary(), Remains(), os.getloadavg()[0]
        with serving(CompletionServer(answer, delay_s=ANSWER_S)) as server:
            command = [
                *(sys.executable, "-m", "coding_model_project", "harbor", "eval"),
                *(str(folder / "tasks"), "--base-url", server.url, "--model", "toy"),
                *("--out", str(folder / "job"), "--n-tasks", str(n_tasks)),
                *("--concurrency", str(concurrency), "--json"),
            ]
            started = time.monotonic()
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            with watched(process) as seen_kb:
                said, _ = process.communicate()
            seconds = time.monotonic() - started
        wrong = list(remains.found())
        if files := temporary() - before:
            wrong.append(f"files in {gettempdir()}: {sorted(files)[:5]}")
        counted = json.loads(said.splitlines()[-1]) if said else {}
        passes = sum(number % 3 != 1 for number in range(n_tasks))
        if (counted.get("PASS"), counted.get("FAIL")) != (passes, n_tasks - passes):
            wrong.append(f"rewards: {counted}")
        if process.returncode:
            wrong.append(f"exit code {process.returncode}")
        folders = [path for path in (folder / "job").iterdir() if path.is_dir()]
        if not len(folders) == len(read_trials(folder / "job")) == n_tasks:
            wrong.append(f"{len(folders)} folders of trials")
    print("; ".join(wrong) or "ok", file=sys.stderr)
    summary = {
        "trials": n_tasks,
        "at_once": concurrency,
        "seconds": round(seconds, 1),
        "peak_mb": round(max(seen_kb) / 1024),
        "load": load,
        "ok": not wrong,
    }
    print(json.dumps(summary))
    return int(bool(wrong))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    raise SystemExit(main(*(given + [TASKS, CONCURRENCY][len(given) :])))
