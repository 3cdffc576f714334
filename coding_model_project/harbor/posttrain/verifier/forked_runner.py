"""A process that runs one program on inputs with the forker of exported tasks.

`forked_sandbox` starts it. Standard input: a line of JSON with the program and its limits, then a line
per input. Standard output: a line per input. It never receives an expected output.
"""

from __future__ import annotations

import json
import os
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from coding_model_project.harbor.export import forker, inner, kernel
from coding_model_project.harbor.export.forker import Forker, Job, Lost, Process, Request
from coding_model_project.harbor.export.verifier import content_of, folder_with, in_files

_ADDRESS_MB = 512
"""The interpreter's address space in MiB, in addition to a program's memory limit."""


def main() -> None:
    """Serve one program until standard input ends."""
    asked = json.loads(sys.stdin.buffer.readline())
    source = b64decode(asked["source"])
    started = forker.start(source)
    if isinstance(started, Job):
        inner.prepare(started)()
    kernel.hide()
    kernel.adopt_orphans()
    refused = _refused(source)
    runner = _Runner(source, asked["limits"], started)
    for line in sys.stdin.buffer:
        answer = {"refused": refused} if refused else runner.answer(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    started.end()
    os._exit(0)


def _refused(source: bytes) -> str | None:
    """Return why the source does not compile; None if it does."""
    try:
        compile(source, inner.PROGRAM_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Runner:
    def __init__(self, source: bytes, limits: Mapping[str, Any], started: Forker) -> None:
        self._source, self._limits, self._forker = source, limits, started
        self._max_bytes = limits["output_kb"] << 10

    def answer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run one input, and return how the program ended and its output."""
        began = time.monotonic()
        try:
            with folder_with(self._source, self._forker) as folder:
                outcome = self._run(folder, given)
        except TimeoutError:
            outcome = {"killed": "wall", "exit": -9}
        except Lost:
            if not self._forker.is_in_reach:
                raise
            outcome = {"exit": -9, "stderr": "the program ended its judge"}
        return {"wall_s": time.monotonic() - began, **outcome}

    def _run(self, folder: str, given: Mapping[str, Any]) -> dict[str, Any]:
        match given["kind"]:
            case "stdin":
                return self._script(folder, given["text"].encode("utf-8", "surrogatepass"))
            case "call":
                return self._call(folder, given)
            case _:
                return self._asserts(folder, given)

    def _script(self, folder: str, text: bytes) -> dict[str, Any]:
        with in_files(text, b"") as (stdin, output):
            code = self._forker.run(
                self._request(folder, Process("script", (0, 1))), (stdin, output)
            )
            return self._outcome(code, output, "printed")

    def _call(self, folder: str, given: Mapping[str, Any]) -> dict[str, Any]:
        asked = json.dumps({"call": given["function"], "args": given["args"]}).encode()
        with in_files(asked, b"") as (stdin, output):
            code = self._forker.run(self._request(folder, Process("call", (0, 3))), (stdin, output))
            return self._outcome(code, output, "answered")

    def _asserts(self, folder: str, given: Mapping[str, Any]) -> dict[str, Any]:
        asked = {
            "sources": [given["source"]],
            "entry_point": given["entry_point"],
            "max_bytes": self._max_bytes,
        }
        with in_files(json.dumps(asked).encode(), b"") as (stdin, answer):
            to_program, to_tests = os.pipe(), os.pipe()
            callee, own = Process("callee", (3, 4)), Process("tests", (0, 3, 4, 5))
            ends = (to_tests[0], to_program[1], to_program[0], to_tests[1])
            code = self._forker.run(
                self._request(folder, own, callee), (stdin, answer, *ends), passed_on=ends
            )
            return self._outcome(code, answer, "answered")

    def _outcome(self, code: int, descriptor: int, name: str) -> dict[str, Any]:
        content = content_of(descriptor, self._max_bytes)
        outcome = {"exit": code, "full": content is None}
        return {**outcome, name: b64encode(content or b"").decode()}

    def _request(self, folder: str, *processes: Process) -> Request:
        limits = self._limits
        memory_mb, output_kb = limits["memory_mb"] + _ADDRESS_MB, limits["output_kb"]
        return Request(folder, limits["cpu_s"], memory_mb, output_kb, limits["wall_s"], processes)


if __name__ == "__main__":
    main()
