"""Compare inputs that share a process with inputs in separate processes.

python -m tests.soak.fast_path [FILE ...]

Compares all that a judge looks at (status, value, standard output, end of standard error) over
generated programs: solutions of tinycode, mutants of them, and both with a state hidden in one of several
ways. Files add real programs: rows of MBPP, HumanEval and CRUXEval, rows with `code` and `tests`, and
Python files, which run as scripts on a few inputs of numbers.
"""

from __future__ import annotations

import ast
import asyncio
import gzip
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from coding_model_project.data.quality.mutants import mutants
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.fast_path.stateless import (
    is_stateless,
    is_stateless_script,
)
from coding_model_project.synthetic.tinycode.generator import generate
from coding_model_project.types import Call, Execution, Limits, Plain, Program, Stdin

TASKS, MUTANTS = 150, 3
AT_ONCE = 4
LIMITS = Limits(cpu_s=1.0, wall_s=5.0, memory_mb=256)

HIDDEN = {
    "a global name": "seen = 0\ndef count():\n    global seen\n    seen += 1\n    return seen\n",
    "a list": "seen = []\ndef count():\n    seen.append(1)\n    return len(seen)\n",
    "a default": "def count(seen=[]):\n    seen.append(1)\n    return len(seen)\n",
    "an attribute": "def count():\n    count.n = getattr(count, 'n', 0) + 1\n    return count.n\n",
    "a cache": "import functools\n@functools.cache\ndef seen(): return []\n"
    "def count():\n    seen().append(1)\n    return len(seen())\n",
    "a class": "class S: n = 0\ndef count():\n    S.n += 1\n    return S.n\n",
    "an iterator": "import itertools\nnumbers = itertools.count(1)\ndef count(): return next(numbers)\n",
    "a module": "import math\ndef count():\n    math.n = getattr(math, 'n', 0) + 1\n    return math.n\n",
    "an environment": "import os\ndef count():\n    os.environ['n'] = os.environ.get('n', '') + '1'\n"
    "    return len(os.environ['n'])\n",
    "random numbers": "import random\nrandom.seed(1)\ndef count(): return random.random()\n",
}
"""Ways for a program to know how often it was called."""


_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
"""Address of a printed object, which is an accepted difference."""

NUMBERS = ("", "3\n1 2 3\n", "2 5\n4 4\n7 1\n", "5\n5 4 3 2 1\n", "1\n1\n0\n", "abc\nxyz\n")
"""Inputs for scripts with an unknown input format."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program and its inputs."""

    origin: str
    source: str
    given: tuple[Call | Stdin, ...]

    @property
    def inputs(self) -> list[Call | Stdin]:
        """Return the inputs, with the first ones repeated: a state would change their answers."""
        return [*self.given, *self.given[:2]]

    @property
    def shares(self) -> bool:
        """Return whether the inputs share a process."""
        source = self.source.encode()
        proof = is_stateless if isinstance(self.given[0], Call) else is_stateless_script
        with suppress(SyntaxError, ValueError):  # of a program that does not compile
            return proof(source)
        return False


def _of_calls(
    origin: str, source: str, function: str, arguments: Iterable[tuple[Plain, ...]]
) -> Case:
    return Case(origin, source, tuple(Call(function, args) for args in arguments))


def generated() -> Iterator[Case]:
    """Yield programs of tinycode, changed in small ways, with and without a state."""
    tasks = generate(0, TASKS).tasks
    ways = list(HIDDEN.items())
    for number, task in enumerate(tasks):
        inputs = [t.input for t in task.problem.tests if isinstance(t.input, Call | Stdin)]
        sources = [*task.problem.gold, *task.problem.bad]
        sources += [m.code for m in islice(mutants(task.problem.gold[0]), MUTANTS)]
        for source in sources:
            yield Case("tinycode", source, tuple(inputs))
        way, state = ways[number % len(ways)]
        gold = task.problem.gold[0]
        if isinstance(first := inputs[0], Call):
            asks = f"def asked(*args):\n    return {first.function}(*args), count()\n"
            arguments = [one.args for one in inputs if isinstance(one, Call)]
            yield _of_calls(f"with {way}", f"{state}{gold}\n{asks}", "asked", arguments)
        else:
            yield Case(f"with {way}", f"{state}{gold}\nprint(count())\n", tuple(inputs))


def real(path: Path) -> Iterator[Case]:
    """Yield the programs of a file whose calls have literal arguments, or a script."""
    if path.suffix == ".py":
        source = path.read_bytes().decode("utf-8", "replace")
        yield Case("scripts", source, tuple(map(Stdin, NUMBERS)))
        return
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            case = _case(path.name, json.loads(line))
            if case is not None and case.given:
                yield case


def _case(origin: str, row: dict[str, Any]) -> Case | None:
    match row:
        case {"code": str(code), "input": str(given), "output": _}:
            return _of_calls(origin, code, "f", tuple(_calls(f"f({given})", "f")))
        case {"code": str(code), "test_list": list(tests)}:
            name = next(iter(_called("\n".join(tests))), "")
            return _of_calls(origin, code, name, tuple(_calls("\n".join(tests), name)))
        case {"prompt": str(start), "canonical_solution": str(end), "test": str(test)}:
            return _of_calls(
                origin, start + end, row["entry_point"], tuple(_calls(test, "candidate"))
            )
        case {"mode": "stdio", "code": str(code), "tests": list(tests)}:
            return Case(origin, code, tuple(Stdin(test["input"]) for test in tests))
        case {"mode": "call", "code": str(code), "entry": str(name), "tests": list(tests)}:
            return _of_calls(origin, code, name, tuple(tuple(test["input"]) for test in tests))
        case _:
            return None


def _called(source: str) -> Iterator[str]:
    """Return the functions whose results asserts compare."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=ast.Call(func=ast.Name(id=name))):
                yield name
            case _:
                pass


def _calls(source: str, name: str) -> Iterator[tuple[Plain, ...]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=called), args=args, keywords=[]) if called == name:
                try:
                    yield tuple(ast.literal_eval(one) for one in args)
                except (ValueError, TypeError):
                    continue
            case _:
                pass


async def compare(cases: Sequence[Case]) -> tuple[Counter[str], list[str]]:
    """Run each case both ways; return counts, and a line for each difference."""
    counts: Counter[str] = Counter()
    differences: list[str] = []
    free = asyncio.Semaphore(AT_ONCE)
    async with EmbeddedSandbox() as alone, EmbeddedSandbox(share_processes=True) as shared:

        async def one(case: Case) -> None:
            async with free:
                program = Program(source=case.source)
                apart = await alone.run(program, case.inputs, LIMITS)
                together = await shared.run(program, case.inputs, LIMITS)
            counts["programs"] += 1
            counts["inputs"] += len(case.inputs)
            counts["programs that share a process"] += case.shares
            for given, a, b in zip(case.inputs, apart, together, strict=True):
                if case.shares and _seen(a) != _seen(b):  # others may draw random numbers
                    differences.append(
                        f"{case.source[:200]!r} {given!r:.100}: {_seen(a)} alone, {_seen(b)} shared"
                    )
            advance()

        with progress_bar("programs", len(cases)) as advance:
            await asyncio.gather(*map(one, cases))
    return counts, differences


def _seen(execution: Execution) -> tuple[object, ...]:
    texts = (repr(execution.value), execution.stdout, execution.stderr_tail)
    return execution.status, *(_ADDRESS.sub("0x…", text) for text in texts)


def main(files: Sequence[str]) -> int:
    """Compare all; exit with 1 if there was a difference."""
    by_origin: dict[str, list[Case]] = {}
    for case in [*generated(), *(case for name in files for case in real(Path(name)))]:
        by_origin.setdefault(case.origin, []).append(case)
    failed = False
    for origin, cases in by_origin.items():
        counts, differences = asyncio.run(compare(cases))
        print(f"{origin}: {', '.join(f'{n} {name}' for name, n in counts.items())}")
        print(f"  {len(differences)} differences")
        for line in differences[:20]:
            print(f"  {line}")
        failed = failed or bool(differences)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
