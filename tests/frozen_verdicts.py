"""Verdicts of 22,000 completions, frozen: whoever changes the judge sees which verdicts change.

python -m tests.frozen_verdicts            compare; exit code 1 if a verdict differs
python -m tests.frozen_verdicts --loaded   the same beside a busy process per core, which must change none
python -m tests.frozen_verdicts --write    freeze today's

Problems and completions are generated, so `tests/frozen/verdicts.tsv.gz` has a line per case: its name,
the verdict, and the rule that found the program. A difference is a fault, or it goes under "Scores
change" in `CHANGELOG.md` and is frozen with the change. Languages without a compiler here are left out.
The texts of `--help` and the configuration's keys are frozen in `docs/`.
"""

import argparse
import asyncio
import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from coding_model_project import Judge
from coding_model_project.errors import UngradableError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.synthetic import tinymix
from coding_model_project.synthetic.tinycode import generate
from coding_model_project.types import Asserts, Limits, Problem, Stdin, Test, Verdict
from tests.language_cases import CASES
from tests.tables import tables

FROZEN = Path(__file__).parent / "frozen/verdicts.tsv.gz"
_SHOWN = 20

Case = tuple[str, Problem, str]
"""Name, problem and completion."""

PROGRAM_FORMS, ANSWER_FORMS = tables("answer_forms").values()

_LIMITS = {"cpu_s": 0.5, "wall_s": 4.0, "memory_mb": 128, "output_kb": 64}
_SQUARE = (Test(Asserts("assert f(3) == 9\nassert f(0) == 0", "f")),)
_BY_HAND = {
    "echo": (tuple(Test(Stdin(f"{n}\n"), expected=f"{n}\n{n}\n") for n in range(3)), _LIMITS),
    "checked": (_SQUARE, _LIMITS),
    "hasty": (_SQUARE, _LIMITS | {"wall_s": 1.0}),
}
"""Tests and limits of the programs in `tests/data/verdicts.json`."""


def cases() -> Iterator[Case]:
    """Yield all cases, in the same order each time."""
    yield from _programs()
    yield from _answers()
    for number, (name, program) in enumerate(tables("verdicts")):
        tests, limits = _BY_HAND[name]
        problem = Problem(
            id=f"soak/{name}", split="test", statement="", tests=tests, limits=Limits(**limits)
        )
        yield f"{problem.id}/{number}", problem, PROGRAM_FORMS["fence"].format(program)
    yield from _languages()


def _programs() -> Iterator[Case]:
    forms = list(PROGRAM_FORMS.items())
    tasks = generate()
    every = (one for split in ("train", "validation", "test") for one in tasks.problems(split))
    number = 0
    for problem in every:
        for kind, programs in (("gold", problem.gold), ("bad", problem.bad)):
            for i, program in enumerate(programs):
                form, text = forms[number % len(forms)]
                number += 1
                yield f"{problem.id}/{kind}{i}/{form}", problem, text.format(program)


def _answers() -> Iterator[Case]:
    for number, problem in enumerate(tinymix.arithmetic()):
        for i, (form, text) in enumerate(ANSWER_FORMS.items()):
            if (number + i) % 4 == 0:
                right = int(problem.answer or "")
                yield f"{problem.id}/right/{form}", problem, text.format(right)
                yield f"{problem.id}/wrong/{form}", problem, text.format(right + 1)


def _languages() -> Iterator[Case]:
    here = toolchains.available(Tier.namespaces)
    for language, programs in CASES.items():
        if language not in here:
            print(f"left out: no compiler of {language}", file=sys.stderr)
            continue
        for one in programs:
            problem = Problem(
                id=f"{language}/{one.name}",
                split="test",
                statement="Print it.",
                tests=(Test(input=Stdin(""), expected=one.stdout or ""),),
                limits=one.limits,
                language=language,
            )
            yield problem.id, problem, f"```{language}\n{one.source}\n```"


@contextmanager
def busy() -> Iterator[None]:
    """Run a busy process per core inside the context."""
    burn = [sys.executable, "-c", "while True: pass"]
    burning = [subprocess.Popen(burn) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def line(name: str, outcome: Verdict | UngradableError) -> str:
    """Return a case's line."""
    if isinstance(outcome, UngradableError):
        return f"{name}\tungradable\t{type(outcome).__name__}"
    verdict = outcome.error or "passed"
    return f"{name}\t{verdict}\t{outcome.pass_fraction:.3f}\t{outcome.extraction}"


async def judged() -> list[str]:
    names, problems, completions = zip(*cases(), strict=True)
    async with Judge() as judge:
        outcomes = await judge.grade_many(problems, completions, progress=True, return_errors=True)
    return [line(name, outcome) for name, outcome in zip(names, outcomes, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="freeze today's verdicts")
    parser.add_argument("--loaded", action="store_true", help="with a busy process per core")
    given = parser.parse_args()
    with busy() if given.loaded else nullcontext():
        lines = asyncio.run(judged())
    if given.write:
        with gzip.GzipFile(FROZEN, "wb", mtime=0) as file:
            file.write("\n".join(lines).encode())
        print(f"{len(lines)} verdicts are frozen")
        return 0
    before = dict(
        one.split("\t", 1) for one in gzip.decompress(FROZEN.read_bytes()).decode().split("\n")
    )
    now = dict(one.split("\t", 1) for one in lines)
    changed = [name for name in now if name in before and now[name] != before[name]]
    for name in changed[:_SHOWN]:
        print(f"{name!r}: {before[name]!r}, now {now[name]!r}")
    new, gone = len(now.keys() - before.keys()), len(before.keys() - now.keys())
    print(f"{len(now)} verdicts: {len(changed)} differ, {new} are new, {gone} are missing")
    return 1 if changed or new else 0


if __name__ == "__main__":
    sys.exit(main())
