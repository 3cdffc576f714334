"""Compare the rewards of verl's own `sandbox_fusion` scorer with ours, on the same server and tests.

    python -m tests.bench.verl_reward [--url http://localhost:8080] [--rounds 3]

Both sides get the same completions and the same `ground_truth`. Without --url a `sandbox serve` is
started. A counting proxy before the server also makes it busy (HTTP 429) or unreachable. Prints a
Markdown table; speeds are medians over interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from coding_model_project.errors import UngradableError
from tests.contract.conftest import ServerProcess

Score = Callable[[str, Mapping[str, Any]], str]
"""Return the reward of a completion by a ground truth, as text."""

AT_ONCE = 8
PROGRAMS = 64
TESTS = 20

SUM = "print(sum(map(int, input().split())))"
SUMS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
DOUBLE = {"assert_case": ["assert double(2) == 4", "assert double(5) == 10"]}
EQUAL_TO_ALL = """\
class Any(int):
    def __eq__(self, other): return True
def double(x): return Any()"""
PRINTED = {"inputs": ["5\n"], "outputs": ["0.5 1.0\n"]}
TWELVE = {"inputs": ["1 2\n"] * 10 + ["3 4\n"] * 2, "outputs": ["3\n"] * 10 + ["7\n"] * 2}

CASES: list[tuple[str, str, Mapping[str, Any]]] = [
    ("correct program", SUM, SUMS),
    ("one of two tests passes", "print(3)", SUMS),
    ("cheat: exits before the asserts run", "import sys\nsys.exit(0)", DOUBLE),
    ("cheat: returns an object equal to everything", EQUAL_TO_ALL, DOUBLE),
    ("a blank at the end of a line", 'print("3 " if input()[0] == "1" else "7 ")', SUMS),
    ("`0.50 1` where `0.5 1.0` is expected", 'print("0.50 1")', PRINTED),
    ("answers 10 of 12 tests, the first ten", "print(3)", TWELVE),
]
"""Name, program and ground truth."""


class Proxy(ThreadingHTTPServer):
    """A proxy that counts requests, and answers as many as wanted with HTTP 429."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.Client(base_url=target, timeout=120, trust_env=False, limits=limits)
        self.lock = threading.Lock()
        self.requests = 0
        self.busy = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        with self.server.lock:
            self.server.requests += 1
            busy, self.server.busy = self.server.busy > 0, max(0, self.server.busy - 1)
        if busy:
            self._answer(429, b"{}", {"retry-after": "1"})
            return
        answer = self.server.client.post(
            self.path, content=body, headers={"content-type": "application/json"}
        )
        self._answer(answer.status_code, answer.content)

    def do_GET(self) -> None:
        answer = self.server.client.get(self.path)
        self._answer(answer.status_code, answer.content)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def verls(url: str) -> Score:
    """Return verl's own scorer."""
    from verl.utils.reward_score.sandbox_fusion import compute_score

    def score(completion: str, truth: Mapping[str, Any]) -> str:
        found, _ = compute_score(
            f"{url}/run_code",
            None,
            1024,
            completion,
            json.loads(json.dumps(truth)),
            continuous=True,
        )
        return f"{found:.2f}"

    return score


def ours(sandbox: str) -> Score:
    """Return the scorer of `coding_model_project.integrations.verl`."""
    from coding_model_project.integrations.verl import compute_score

    def score(completion: str, truth: Mapping[str, Any]) -> str:
        try:
            found = compute_score("mine", completion, json.dumps(truth), sandbox=sandbox)
        except UngradableError:
            return "no score: the sample is dropped"
        return f"{found['score']:.2f}"

    return score


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def judged(score: Score) -> tuple[float, int]:
    """Judge `PROGRAMS` different correct programs on `TESTS` tests each.

    Returns:
        The seconds that it takes, and how many of them get less than the full reward.
    """
    pairs = [(f"{n} {n + 1}\n", f"{2 * n + 1}\n") for n in range(TESTS)]
    truth = {"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]}
    mark = time.monotonic_ns()  # so that no program is judged before
    programs = [fenced(f"{SUM}  # {mark} {n}") for n in range(PROGRAMS)]
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        scores = list(threads.map(lambda program: score(program, truth), programs))
    return time.perf_counter() - started, PROGRAMS - scores.count("1.00")


def compare(url: str, rounds: int) -> Iterator[tuple[str, str, str]]:
    """Yield rows of the table: what happens, verl's scorer, ours."""
    proxy = Proxy(url)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    theirs, mine, embedded = verls(proxy.url), ours(proxy.url), ours("embedded")
    for name, program, truth in CASES:
        yield name, theirs(fenced(program), truth), mine(fenced(program), truth)
    busy = []
    for n, score in enumerate((theirs, mine)):
        proxy.busy = 1
        busy.append(score(fenced(f"{SUM}  # busy {n}"), SUMS))
    yield "correct program, one answer is HTTP 429", *busy
    rates: dict[str, list[float]] = {"theirs": [], "mine": [], "embedded": []}
    requests: dict[str, float] = {}
    wronged = dict.fromkeys(rates, 0)
    sides = {"theirs": theirs, "mine": mine, "embedded": embedded}
    for _ in range(rounds):
        for name, score in sides.items():
            proxy.requests = 0
            seconds, below = judged(score)
            rates[name].append(PROGRAMS / seconds)
            wronged[name] += below
            requests[name] = proxy.requests / PROGRAMS
    median = {name: statistics.median(values) for name, values in rates.items()}
    yield (
        f"requests for a program with {TESTS} tests",
        f"{requests['theirs']:.3g}",
        f"{requests['mine']:.3g}",
    )
    yield (
        f"such programs per second, {AT_ONCE} at once",
        f"{median['theirs']:.1f}",
        f"{median['mine']:.1f} ({median['embedded']:.1f} without a server)",
    )
    yield (
        f"correct programs of these that get less than 1, of {rounds * PROGRAMS}",
        str(wronged["theirs"]),
        str(wronged["mine"]),
    )
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        yield (
            "correct program, nothing listens at the URL",
            verls(nowhere)(fenced(SUM), SUMS),
            ours(nowhere)(fenced(SUM), SUMS),
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="Use this SandboxFusion server.")
    parser.add_argument("--rounds", type=int, default=3, help="Measure speeds so many times. [3]")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print("| what happens | verl's `sandbox_fusion` | this package |\n|---|---|---|")
    server = None if arguments.url else ServerProcess()
    try:
        for row in compare(arguments.url or server.url, arguments.rounds):
            print("| {} | {} | {} |".format(*row), flush=True)
    finally:
        if server is not None:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
