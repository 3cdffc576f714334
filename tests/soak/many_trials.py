"""`harbor eval` with hundreds of concurrent trials: all end, nothing is left, and memory is measured.

    python -m tests.soak.many_trials [TASKS] [CONCURRENCY]

500 tasks and 256 at once by default, against a server of this process that waits as a model does. Every
third attempt is wrong, and must fail; the others must pass. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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


@dataclass
class Peak:
    """Peak resources of a command and its descendants."""

    rss_mb: float = 0.0
    """Sum of resident sets; shared pages count once per process."""
    pss_mb: float = 0.0
    """Sum of proportional set sizes: the memory that the machine really used."""
    processes: int = 0
    descriptors: int = 0
    """Descriptors of the command itself."""
    ended: threading.Event = field(default_factory=threading.Event)

    def look(self, root: psutil.Process) -> None:
        with suppress(psutil.Error):
            family = [root, *root.children(recursive=True)]
            used = [one for process in family if (one := _memory(process)) is not None]
            self.rss_mb = max(self.rss_mb, sum(rss for rss, _ in used) / 1024)
            self.pss_mb = max(self.pss_mb, sum(pss for _, pss in used) / 1024)
            self.processes = max(self.processes, len(used))
            self.descriptors = max(self.descriptors, root.num_fds())


def _memory(process: psutil.Process) -> tuple[int, int] | None:
    """Return resident and proportional set size in kilobytes."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return sizes["Rss"], sizes["Pss"]
    return None


@contextmanager
def watched(process: subprocess.Popen[bytes]) -> Iterator[Peak]:
    """Measure the peak of a process inside the context."""
    peak, root = Peak(), psutil.Process(process.pid)

    def look() -> None:
        while not peak.ended.wait(LOOK_S):
            peak.look(root)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield peak
    finally:
        peak.ended.set()
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
            with watched(process) as peak:
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
        "peak_rss_mb": round(peak.rss_mb),
        "peak_pss_mb": round(peak.pss_mb),
        "peak_processes": peak.processes,
        "peak_descriptors": peak.descriptors,
        "load": load,
        "ok": not wrong,
    }
    print(json.dumps(summary))
    return int(bool(wrong))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    raise SystemExit(main(*(given + [TASKS, CONCURRENCY][len(given) :])))
