"""HumanEval-X's own solutions in every language that is run here: how many are accepted.

python -m tests.soak.humaneval_x [DATA_FOLDER] [--language L]

DATA_FOLDER has humaneval_x_{cpp,js,java,go,rust}.jsonl.gz, as the publisher (CodeGeeX) has them.
Programs are put together as by its evaluate_humaneval_x.py, with these differences:

- Go's tests are of the module testify, and run by `go test`. Here a program runs them with the standard
  library's `testing`, and with an `assert.Equal` of this file's that compares as testify's does.
- Rust's tests are run by `cargo test`. Here a `main` calls each. The lines that import the crates rand,
  regex and md5, which all problems begin with, are left out; what uses one cannot be compiled.
- A JavaScript program must print nothing on standard error either: `console.assert` only prints.

So that the table can fail, each problem is judged with wrong solutions too: the next problem's, and one
that returns its type's zero value. None may be accepted. Exit code 1 if one is, or if a solution is
rejected that is not in `KNOWN`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.types import Execution, Limits, Program, Status, Stdin

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Beside a checkout, as other recorded data."""
LIMITS = Limits(cpu_s=10.0, wall_s=40.0, memory_mb=1024, output_kb=256)
FILES = {"cpp": "cpp", "javascript": "js", "java": "java", "go": "go", "rust": "rust"}
KNOWN = {
    "CPP/22": "uses boost/any.hpp",
    "CPP/137": "uses boost/any.hpp",
    "CPP/162": "uses the library crypto",
    "Rust/32": "its tests are commented out",
    "Rust/38": "its tests use the crate rand",
    "Rust/50": "its tests use the crate rand",
    "Rust/53": "its tests use the crate rand",
    "Rust/91": "uses the crate regex",
    "Rust/162": "uses the crate md5",
    "Go/95": "depends on the order of a map, which Go draws anew each time",
    "JavaScript/112": "returns the second of two values",
    "JavaScript/155": "counts no digit in 0",
    "JavaScript/162": "uses the module js-md5",
}
"""Tasks whose own solution is not accepted, or not always, and why."""

WEAK = {
    "Rust/4": "its tests do not look at the absolute difference",
    "CPP/23": "its tests call the C library's strlen",
}
"""Tasks whose tests accept a zero value."""

Row = Mapping[str, str]

_HEADERS = (
    "using namespace std;", "#include<stdlib.h>", "#include<algorithm>", "#include<math.h>",
    "#include<stdio.h>", "#include<vector>", "#include<string>", "#include<climits>",
    "#include<cstring>", "#include<iostream>",
)  # fmt: skip
"""Which the publisher puts before a C++ program that does not have them, `using` last."""

_PACKAGES = (
    "math", "strings", "fmt", "strconv", "time", "bytes", "regexp", "sort", "math/rand", "crypto/md5",
)  # fmt: skip
"""Which the publisher has a Go program import where the solution seems to use them."""

_ASSERT = """
type assertions struct{ t *testing.T }
type assertMaker struct{}
var assert assertMaker
func (assertMaker) New(t *testing.T) assertions { return assertions{t} }
func (a assertions) Equal(expected, actual interface{}, _ ...interface{}) {
    same := humanevalReflect.DeepEqual(expected, actual)
    if one, is := expected.([]byte); is && one != nil {
        other, is := actual.([]byte)
        same = is && humanevalBytes.Equal(one, other)
    }
    if !same { a.t.Errorf("expected %#v, got %#v", expected, actual) }
}
"""
_RUN = """
func main() {{
    all := func(_, _ string) (bool, error) {{ return true, nil }}
    testing.Main(all, []testing.InternalTest{{{{Name: "{0}", F: {0}}}}}, nil, nil)
}}
"""
_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.M | re.S)
_CRATES = re.compile(r"^use (?:rand::Rng|regex::Regex|md5);\n", re.M)


def cpp(row: Row, solution: str) -> str:
    missing = [line for line in _HEADERS if line not in row["prompt"]]
    missing.sort(key=lambda line: line.startswith("using"))
    return "\n".join(missing) + f"\n{row['prompt']}{solution}\n{row['test']}"


def plain(row: Row, solution: str) -> str:
    return f"{row['prompt']}{solution}\n{row['test']}"


def go(row: Row, solution: str) -> str:
    imported = re.findall(r'"([\w/]+)"', row["test_setup"])
    for package in _PACKAGES:
        if package not in imported and f"{package.rpartition('/')[2]}." in solution:
            imported.append(package)
    own = 'import humanevalReflect "reflect"\nimport humanevalBytes "bytes"\n'
    listed = "".join(f'import "{package}"\n' for package in imported) + own
    prompt = row["prompt"].replace(row["import"], "") if row["import"] else row["prompt"]
    name = re.findall(r"func (Test\w+)\(", row["test"])[0]
    run = _RUN.format(name)
    return f"package main\n{listed}{_ASSERT}{prompt}{solution}\n{row['test']}\n{run}"


def rust(row: Row, solution: str) -> str:
    test = _COMMENT.sub("", row["test"].replace("#[cfg(test)]", ""))
    names = re.findall(r"#\[test\]\s*fn (\w+)", test)
    test = re.sub(r"#\[test\]\s*fn ", "pub fn ", test)
    calls = " ".join(f"tests::{name}();" for name in names) or 'panic!("no tests")'
    declaration = _CRATES.sub("", row["declaration"])
    return f"{declaration}{solution}\n{test}\nfn main() {{ {calls} }}"


BUILDERS: Mapping[str, Callable[[Row, str], str]] = {
    "cpp": cpp,
    "javascript": plain,
    "java": plain,
    "go": go,
    "rust": rust,
}


def zero(language: str, row: Row) -> str:
    """A body that returns its type's zero value."""
    declared = row["declaration"].rstrip().rstrip("{").rstrip().splitlines()[-1]
    match language:
        case "java":
            type_ = declared.replace("public ", "").replace("static ", "").strip().split("(")[0]
            numbers = ("int", "long", "double", "float", "char")
            kind = type_.rsplit(" ", 1)[0]
            value = "0" if kind in numbers else "false" if kind == "boolean" else "null"
            return f"        return {value};\n    }}\n}}"
        case "go":
            kind = _go_result(declared)
            return f"    var zero {kind}\n    return zero\n}}\n" if kind else "    return\n}\n"
        case "rust":
            return "    return Default::default();\n}\n"
        case "cpp":
            return "    return {};\n}\n"
        case _:
            return "  return undefined;\n}\n"


def _go_result(declared: str) -> str:
    """What a function's declaration says after its parameters."""
    start = declared.index("(", declared.index("func "))
    depth = 0
    for at in range(start, len(declared)):
        depth += {"(": 1, ")": -1}.get(declared[at], 0)
        if not depth:
            return declared[at + 1 :].strip()
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One program."""

    task: str
    execution: Execution

    @property
    def accepted(self) -> bool:
        return self.execution.status is Status.finished

    @property
    def reason(self) -> str:
        """Its status, and the first line that says more."""
        said = self.execution.stderr_tail.strip().splitlines()
        errors = [line for line in said if "rror" in line or "Assert" in line or "panic" in line]
        line = (errors or said or [""])[0]
        return f"{self.execution.status}: {line.strip()[:140]}"


async def judge(
    sandbox: EmbeddedSandbox, language: str, programs: Mapping[str, str]
) -> list[Judged]:
    async def one(task: str, source: str) -> Judged:
        program = Program(source=source, language=language)
        (execution,) = await sandbox.run(program, [Stdin("")], LIMITS)
        quiet = language != "javascript" or not execution.stderr_tail
        if execution.status is Status.finished and not quiet:
            execution = Execution(status=Status.raised, stderr_tail=execution.stderr_tail)
        return Judged(task=task, execution=execution)

    return list(await asyncio.gather(*(one(*item) for item in programs.items())))


async def measure(folder: Path, languages: list[str]) -> bool:
    """Print the table; true if all is as it must be."""
    good = True
    rejected: list[Judged] = []
    print(
        "| language | accepted | seconds | next problem's: accepted | zero value: accepted (ran) |"
    )
    print("|---|---|---|---|---|")
    async with EmbeddedSandbox() as sandbox:
        for language in languages:
            if problem := toolchains.why_not(toolchains.named(language), sandbox.tier):
                print(f"| {language} | not run: {problem} | | | |")
                continue
            with gzip.open(folder / f"humaneval_x_{FILES[language]}.jsonl.gz", "rt") as file:
                rows = [json.loads(line) for line in file]
            build = BUILDERS[language]
            following = [*rows[1:], rows[0]]
            await judge(sandbox, language, {"hello": toolchains.Language(language).hello})
            started = time.monotonic()
            own = await judge(
                sandbox, language, {r["task_id"]: build(r, r["canonical_solution"]) for r in rows}
            )
            took_s = time.monotonic() - started
            others = {
                row["task_id"]: build(row, other["canonical_solution"])
                for row, other in zip(rows, following, strict=True)
            }
            wrong = await judge(sandbox, language, others)
            zeros = {row["task_id"]: build(row, zero(language, row)) for row in rows}
            empty = await judge(sandbox, language, zeros)
            failed = [each for each in own if not each.accepted]
            forged = [each for each in (*wrong, *empty) if each.accepted and each.task not in WEAK]
            ran = Counter(each.execution.status is not Status.compile_error for each in empty)[True]
            rejected += failed
            good &= not forged and all(each.task in KNOWN for each in failed)
            print(
                f"| {language} | {len(own) - len(failed)}/{len(own)} | {took_s:.1f} | "
                f"{sum(each.accepted for each in wrong)} | "
                f"{sum(each.accepted for each in empty)} ({ran}) |",
                flush=True,
            )
            for each in forged:
                print(f"wrong, but accepted: {each.task}")
    for each in rejected:
        print(f"{each.task}: {each.reason} [{KNOWN.get(each.task, 'unknown')}]")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--language", choices=FILES, action="append")
    arguments = parser.parse_args()
    languages = arguments.language or list(FILES)
    if not (arguments.data_folder / f"humaneval_x_{FILES[languages[0]]}.jsonl.gz").exists():
        print(f"left out: {arguments.data_folder} has no humaneval_x_*.jsonl.gz")
        return 0
    return 0 if asyncio.run(measure(arguments.data_folder, languages)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
