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
from coding_model_project.harbor.export.forker import Forker, Job, Lost
from coding_model_project.harbor.export.running import Runner

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
    answers = _Answers(source, asked["limits"], started)
    for line in sys.stdin.buffer:
        answer = {"refused": refused} if refused else answers.answer(json.loads(line))
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


class _Answers:
    """The answers to one program's inputs."""

    def __init__(self, source: bytes, limits: Mapping[str, Any], started: Forker) -> None:
        self._wall_s, self._forker = limits["wall_s"], started
        self._runner = Runner(
            source,
            started,
            cpu_s=limits["cpu_s"],
            memory_mb=limits["memory_mb"] + _ADDRESS_MB,
            output_kb=limits["output_kb"],
        )

    def answer(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run one input, and return how the program ended and its output."""
        began = time.monotonic()
        try:
            outcome = self._run(given)
        except Lost:
            if not self._forker.is_in_reach:
                raise
            outcome = {"exit": -9, "stderr": "the program ended its judge"}
        return {"wall_s": time.monotonic() - began, **outcome}

    def _run(self, given: Mapping[str, Any]) -> dict[str, Any]:
        name = "answered"
        match given["kind"]:
            case "stdin":
                name, text = "printed", given["text"].encode("utf-8", "surrogatepass")
                ran = self._runner.script(text, self._wall_s)
            case "call":
                ran = self._runner.call(given["function"], given["args"], self._wall_s)
            case _:
                ran = self._runner.asserts([given["source"]], given["entry_point"], self._wall_s)
        if ran.code is None:
            return {"killed": "wall", "exit": -9}
        answer = b64encode(ran.answer or b"").decode()
        return {"exit": ran.code, "full": ran.answer is None, name: answer}


if __name__ == "__main__":
    main()
