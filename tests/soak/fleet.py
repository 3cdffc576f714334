"""Programs judged by servers that come, drain, leave, differ and are killed: `make soak`.

    python -m tests.soak.fleet [PROGRAMS]

10,000 programs by default, each unlike all others, on servers of this machine that a file names; the same
programs on one embedded sandbox say what is right. The last line is JSON; exit code 1 unless each program
was judged once, as there.
"""

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

import coding_model_project as cmp
from coding_model_project.errors import UngradableError
from coding_model_project.http import Service
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.fusion import FusionSandbox
from coding_model_project.types import Limits
from tests.contract.conftest import COMMAND, ServerProcess
from tests.soak.sources import SOURCES

PROGRAMS = 10_000
AT_ONCE = 64
REFRESH_S = 0.5
LIMITS = Limits(cpu_s=1.0, wall_s=10.0, memory_mb=256)

_WEAKER = SOURCES["weaker server"]
"""`sandbox serve` of a machine that allows no more than tier seccomp."""


class WeakerServer(ServerProcess):
    COMMAND = (sys.executable, "-c", _WEAKER, *COMMAND[3:])


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The programs' results and the servers' events."""

    programs: int
    judged: int = 0
    lost: int = 0
    twice: int = 0
    wrong: int = 0
    ran_elsewhere: int = 0
    """Number of programs that ran on a server that differs from the first."""
    events: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Lines that a user sees on standard error."""
    drained_cleanly: bool = True
    seconds: float = 0.0
    embedded_s: float = 0.0
    n_by_verdict: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        bad = self.lost or self.twice or self.wrong or self.ran_elsewhere
        return self.judged == self.programs and not bad and self.drained_cleanly


def problem(n: int, limits: Limits = LIMITS) -> cmp.Problem:
    """Return a problem whose right answers differ from all others'."""
    tests = [cmp.Test(cmp.Stdin(f"{n} {k}"), expected=str(n * 3 + k)) for k in range(4)]
    return cmp.Problem.simple("3a + b", id=f"fleet/{n}", tests=tests, limits=limits)


def program(n: int) -> str:
    """Return a program for that problem; one in fifteen fails in ways that policies' programs do."""
    right = f"a, b = map(int, input().split())\nprint(3 * a + b)  # {n}"
    match n % 15:
        case 1:
            return f"a, b = map(int, input().split())\nprint(3 * a + b + (b == 2))  # {n}"
        case 3:
            return f"print({n}, input())"
        case 5:
            return f"raise SystemExit({n % 7})"
        case 7:
            return f"def f(:  # {n}"
        case 9:
            return f"import os\nos.abort()  # {n}"
        case 11 if n % 60 == 11:
            endless = right.replace("\n", "\nwhile b == 3: pass\n", 1)
            return endless if n % 600 == 11 else f"x = 'a' * (1 << 40)  # {n}"
        case 13:
            return f"print('x' * {300_000 + n})"
        case _:
            return right


class World:
    """Servers, and the file that names them."""

    def __init__(self, folder: Path, outcome: Outcome) -> None:
        self.file, self._outcome = folder / "judges.txt", outcome
        self.servers: dict[str, ServerProcess] = {}
        self._started = time.monotonic()

    def start(self) -> None:
        """Start all servers of the test."""
        kinds = dict.fromkeys("abcde", ServerProcess) | {"weaker": WeakerServer}
        with ThreadPoolExecutor() as pool:
            started = {name: pool.submit(kind, "--workers", "1") for name, kind in kinds.items()}
        self.servers = {name: server.result() for name, server in started.items()}

    def name(self, *names: str) -> None:
        """List only these servers in the file."""
        lines = [f"{self.servers[name].url}  # {name}\n" for name in names]
        whole = self.file.with_suffix(".new")
        whole.write_text("".join(lines))
        whole.replace(self.file)
        self.note(f"named: {', '.join(names)}")

    def kill(self, name: str) -> None:
        self.servers[name].kill()
        self.note(f"{name} killed -9")

    def back(self, name: str) -> None:
        self.servers[name].start()
        self.note(f"{name} is back")

    def drain(self, name: str) -> None:
        """Send SIGTERM; the server must answer accepted requests and exit cleanly."""
        ready = httpx.get(f"{self.servers[name].url}/v1/ready").status_code
        code = self.servers[name].stop()
        self.note(f"{name} drained, exit code {code}")
        self._outcome.drained_cleanly &= (ready, code) == (200, 0)

    def note(self, what: str) -> None:
        seconds = time.monotonic() - self._started
        self._outcome.events.append(f"{seconds:.0f} s, {self._outcome.judged} judged: {what}")
        print(self._outcome.events[-1], flush=True)

    def close(self) -> None:
        for server in self.servers.values():
            server.stop()


Event = Callable[[World], None]
EVENTS: list[tuple[float, Event]] = [
    (0.05, lambda w: w.name("a", "b", "c")),
    (0.10, lambda w: w.name("a", "b", "c", "d")),
    (0.25, lambda w: w.kill("a")),
    (0.30, lambda w: w.name("a", "b", "c", "d", "weaker")),
    (0.35, lambda w: w.back("a")),
    (0.45, lambda w: w.drain("b")),  # still named: its answers say that it leaves
    (0.50, lambda w: w.name("a", "c", "d", "weaker")),
    (0.55, lambda w: (w.name("a", "d", "weaker"), w.drain("c"))),  # as Kubernetes does it
    (0.65, lambda w: (w.kill("a"), w.kill("d"))),  # none is left
    (0.65, lambda w: w.name("a", "d", "e", "weaker")),
    (0.75, lambda w: (w.back("d"), w.back("a"))),
    (0.85, lambda w: (w.servers["e"].send(signal.SIGSTOP), w.note("e freezes"))),
    (0.88, lambda w: (w.servers["e"].send(signal.SIGCONT), w.note("e goes on"))),
]
"""Share of judged programs at which each event happens. Each event waits for the previous one."""


async def run(programs: int, limits: Limits = LIMITS) -> Outcome:
    """Judge the programs through all events, and on the embedded sandbox."""
    outcome = Outcome(programs=programs)
    problems = [problem(n, limits) for n in range(programs)]
    sources = [program(n) for n in range(programs)]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        world = World(Path(folder), outcome)
        stack.callback(world.close)
        world.start()
        world.name("a", "b")
        stack.enter_context(_heard(outcome.said))
        started = time.monotonic()
        found = await _judge_under_events(problems, sources, world, outcome)
        outcome.seconds = round(time.monotonic() - started, 1)
    started = time.monotonic()
    async with cmp.Judge(sandbox=EmbeddedSandbox(), bare=True) as judge:
        right = await judge.grade_many(problems, sources)
    outcome.embedded_s = round(time.monotonic() - started, 1)
    _compare(found, right, outcome)
    return outcome


async def _judge_under_events(
    problems: Sequence[cmp.Problem], sources: Sequence[str], world: World, outcome: Outcome
) -> dict[str, list[cmp.Verdict]]:
    found: dict[str, list[cmp.Verdict]] = {one.id: [] for one in problems}
    sandbox = FusionSandbox(
        [f"file:{world.file}"], max_concurrency=8, retry_s=90.0, refresh_s=REFRESH_S
    )
    waiting = iter(zip(problems, sources, strict=True))

    async def judge_some(judge: cmp.Judge) -> None:
        for one, source in waiting:
            try:
                found[one.id].append(await judge.grade(one, source))
            except UngradableError as error:
                outcome.said.append(f"{one.id} is lost: {error}")
            outcome.judged += 1

    async def events() -> None:
        for share, happens in EVENTS:
            while outcome.judged < share * outcome.programs:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(happens, world)

    async with cmp.Judge(sandbox=sandbox, workers=AT_ONCE, bare=True) as judge:
        await asyncio.gather(events(), *(judge_some(judge) for _ in range(AT_ONCE)))
    return found


def _compare(
    found: dict[str, list[cmp.Verdict]], right: Sequence[cmp.Verdict], outcome: Outcome
) -> None:
    for expected in right:
        verdicts = found[expected.problem_id]
        outcome.lost += not verdicts
        outcome.twice += len(verdicts) > 1
        for verdict in verdicts:
            outcome.wrong += _told(verdict) != _told(expected)
            outcome.ran_elsewhere += (
                verdict.sandbox.partition("/")[2] != (expected.sandbox.partition("/")[2])
            )
    outcome.n_by_verdict = dict(Counter(str(verdict.error or "accepted") for verdict in right))


def _told(verdict: cmp.Verdict) -> tuple[object, ...]:
    """Return the parts of a verdict that depend only on the program, without times and texts."""
    return (verdict.error, verdict.pass_fraction, *(one.error for one in verdict.results))


@contextmanager
def _heard(lines: list[str]) -> Iterator[None]:
    """Record the notes about servers inside the context, and pass them on."""
    before = Service.note

    def note(service: Service, what: str) -> None:
        lines.append(what)
        before(service, what)

    Service.note = note
    try:
        yield
    finally:
        Service.note = before


def main(programs: int) -> int:
    outcome = asyncio.run(run(programs))
    print(json.dumps({**asdict(outcome), "ok": outcome.ok}))
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else PROGRAMS))
