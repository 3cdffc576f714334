"""2,000 trials, most with candidates that litter, must leave nothing behind and change nothing.

python -m tests.soak.harbor_trials [TRIALS]
"""

import asyncio
import hashlib
import os
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.checking import grade
from coding_model_project.harbor.format.task import Task, load_task
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from coding_model_project.progress import progress_bar
from tests.bench.trials import TRIVIAL, write_task
from tests.soak.remains import MARK, Remains, resident_mb

TRIALS = 2000
CONCURRENCY = 2
FOLDERS = ("/", "/tmp", "/var/tmp", "/dev/shm", "/root", "/etc", "/usr/local/bin", ".")
SETTLE_S = 10.0
GROWTH_MB = 20.0
LITTER = " ".join(f"{folder}/{MARK}" for folder in FOLDERS)
DOES = {
    "is honest": "",
    "litters": f"touch {LITTER} 2>/dev/null; mkdir -p /data/{MARK}; ln -s / /app/all",
    "leaves processes": f"for i in 1 2 3; do setsid nohup bash -c 'exec -a {MARK} sleep 600' & done",
    "leaves a server": f"setsid bash -c 'exec -a {MARK} python3 -m http.server 8000' & sleep 0.1",
    "deletes what it can": "rm -rf --no-preserve-root / 2>/dev/null",
    "prints much": "head -c 20000000 /dev/zero",
    "fills its disk": "head -c 30000000 /dev/zero > /app/big",
    "dies": "kill -9 $$",
    "is late": f"(exec -a {MARK} sleep 600)",
}
"""Actions of a candidate after it has written the right answer; EARNS has the expected rewards."""

LATE = "is late"
LATE_S = 3.0
"""Seconds for a candidate to write its answer, also on a busy machine."""

ROUNDS_TO_LATE = 5
"""One in this many rounds through the kinds has a late candidate, which mostly waits."""

EARNS = {name: {"reward": 1.0} for name in DOES} | {
    "deletes what it can": None  # its working directory too, in which the verifier would start
}


def make_tasks(folder: Path) -> dict[str, Task]:
    tasks = {}
    for number, (name, does) in enumerate(DOES.items()):
        late = f"[agent]\ntimeout_sec = {LATE_S}\n" if name == LATE else ""
        solve = f"#!/bin/bash\necho 42 > /app/answer\n{does}\n"
        files = {**TRIVIAL, "solution/solve.sh": solve, "task.toml": late}
        tasks[name] = load_task(write_task(folder / f"t{number}", files))
    return tasks


def host_files() -> str:
    """Return a digest of names, sizes and times of files that a candidate may try to change."""
    found = hashlib.sha256()
    for folder in ("/usr/bin", "/etc", "/usr/lib/python3"):
        for path in sorted(Path(folder).rglob("*")):
            try:
                about = path.lstat()
            except OSError:
                continue
            found.update(f"{path} {about.st_size} {about.st_mtime_ns} {about.st_mode}".encode())
    return found.hexdigest()


def kinds(n_trials: int) -> list[str]:
    """Return the kinds of this many candidates."""
    quick = [name for name in DOES if name != LATE]
    rounds = [*quick * (ROUNDS_TO_LATE - 1), *DOES]
    return [rounds[n % len(rounds)] for n in range(n_trials)]


async def run_all(tasks: dict[str, Task], n_trials: int) -> tuple[list[str], float, float]:
    """Run the trials.

    Returns:
        The failures, trials per minute, and the growth of the keeper and this process in MB.
    """
    names = kinds(n_trials)
    wrong: Counter[str] = Counter()
    host, first_mb, n = psutil.Process(), 0.0, 0
    with progress_bar("trials", n_trials) as advance:
        async with EmbeddedEnvironments() as environments:
            started = time.monotonic()
            work = ((tasks[name], Oracle()) for name in names)
            graded = grade(work, Trials(environments), concurrency=CONCURRENCY)
            async for one in graded:
                if one.rewards != EARNS[names[n]]:
                    wrong[f"a candidate that {names[n]}: {one.line()}"] += 1
                n += 1
                if n == n_trials // 5:
                    first_mb = resident_mb(host, *host.children())
                advance()
            seconds = time.monotonic() - started
            grown_mb = resident_mb(host, *host.children()) - first_mb
            await settle(host, 1)
            if (left := len(host.children(recursive=True))) > 1:
                wrong[f"{left} processes beside the keeper after the last trial"] += 1
    return [f"{count} × {what}" for what, count in wrong.items()], 60 * n / seconds, grown_mb


async def settle(host: psutil.Process, most: int) -> None:
    deadline = time.monotonic() + SETTLE_S
    while len(host.children(recursive=True)) > most and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


def main(n_trials: int) -> int:
    remains, before, load = Remains(*FOLDERS), host_files(), os.getloadavg()[0]
    with TemporaryDirectory(prefix="harbor-soak-") as folder:
        found, per_minute, grown_mb = asyncio.run(run_all(make_tasks(Path(folder)), n_trials))
    found += remains.found()
    if host_files() != before:
        found.append("files of the host have changed")
    if grown_mb > GROWTH_MB:
        found.append(f"memory grew by {grown_mb:.1f} MB")
    print(
        f"{n_trials} trials by {len(DOES)} kinds of candidates, {per_minute:.0f} a minute at load "
        f"{load:.1f}, memory {grown_mb:+.1f} MB: {'; '.join(found) or 'ok'}"
    )
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if sys.argv[1:] else TRIALS))
