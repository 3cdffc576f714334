"""A process that runs one program on inputs with the forker of exported tasks.

`forked_sandbox` starts it. Standard input: a line of JSON with the program and its limits, then a line
per input. Standard output: a line per input. It never receives an expected output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from coding_model_project.harbor.export import forker, kernel
from coding_model_project.harbor.export.forker import Job
from coding_model_project.harbor.export.running import Runner

_ADDRESS_MB = 512
"""The interpreter's address space in MiB, in addition to a program's memory limit."""


def main() -> None:
    """Serve one program until standard input ends."""
    asked = json.loads(sys.stdin.buffer.readline())
    source = b64decode(asked["source"])
    started = forker.start(source)
    if isinstance(started, Job):
        forker.prepare(started)()
    kernel.hide()
    kernel.adopt_orphans()
    limits, refused = asked["limits"], _refused(source)
    runner = Runner(
        source,
        started,
        cpu_s=limits["cpu_s"],
        memory_mb=limits["memory_mb"] + _ADDRESS_MB,
        output_kb=limits["output_kb"],
    )
    for line in sys.stdin.buffer:
        answer = {"refused": refused} if refused else _answer(runner, limits, *json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    started.end()
    os._exit(0)


def _refused(source: bytes) -> str | None:
    """Return why the source does not compile; None if it does."""
    try:
        compile(source, forker.PROGRAM_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _answer(
    runner: Runner, limits: Mapping[str, Any], head: Mapping[str, Any], text: str
) -> dict[str, Any]:
    """Run one input, in the zygote's form (`outcomes.request`); return how the program ended, and its
    output."""
    began, wall_s, name = time.monotonic(), limits["wall_s"], "answered"
    if "function" in head:
        ran = runner.call(head["function"], json.loads(text)["t"], wall_s)
    elif "entry_point" in head:
        ran = runner.asserts([text], head["entry_point"], wall_s)
    else:
        name = "printed"
        ran = runner.script(text.encode("utf-8", "surrogatepass"), wall_s)
    return {
        "wall_s": time.monotonic() - began,
        "killed": "wall" if ran.code is None else None,
        "exit": -signal.SIGKILL if ran.code is None else ran.code,
        "full": ran.answer is None and ran.code is not None,
        name: b64encode(ran.answer or b"").decode(),
        "stderr": "the program ended its judge" if ran.struck else "",
    }


if __name__ == "__main__":
    main()
