"""In an exported task: one process of `verifier`, which runs a program, calls it, or tests it.

    inner MODE CPU_S MEMORY_MB OUTPUT_KB DESCRIPTOR...

The program's own process knows neither expected values nor tests. What each mode reads and answers is in
`sandbox.embedded.run_program` and `sandbox.embedded.asserts`.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from coding_model_project.sandbox.embedded import asserts, run_program

FIRST_DESCRIPTOR = 3
PROGRAM_FILE = "solution.py"
_PR_SET_DUMPABLE = 4
_AGENTS = "/.verifier/agent"
"""In a room: this process is no verifier's from now on (`harbor.rooms.witness.DROP`)."""
_SYNTAX_ERROR = 1


def main(arguments: list[str]) -> None:
    """Run one mode; the process ends in it."""
    mode, *numbers = arguments
    if mode == "nothing":  # asked whether this can be started
        return
    cpu_s, memory_mb, output_kb, *descriptors = numbers
    for place, descriptor in enumerate(map(int, descriptors), FIRST_DESCRIPTOR):
        os.dup2(descriptor, place)
        os.close(descriptor)
    with suppress(OSError):  # here where nobody watches verifiers
        os.close(os.open(_AGENTS, os.O_RDONLY))
    if mode == "tests":
        hide()
        asked = json.load(sys.stdin)
        sources = [source.encode() for source in asked["sources"]]
        asserts.run_all(sources, asked["entry_point"], asked["max_bytes"])
    seconds = math.ceil(float(cpu_s))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    memory, longest = int(memory_mb) << 20, (int(output_kb) + 1) << 10
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (longest, longest))
    source = Path(PROGRAM_FILE).read_bytes()
    try:
        code = compile(source, PROGRAM_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - for people
        sys.exit(_SYNTAX_ERROR)
    if mode == "script":
        sys.argv[1:] = []
        run_program.run_script(code)
    if mode == "call":
        asked = json.load(sys.stdin)
        run_program.run_call(code, asked["call"], json.dumps(asked["args"]).encode())
    run_program.run_callee(code)


def hide() -> None:
    """Keep other processes of this user out of this one's memory."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
