"""A process per input against one for all: `python -m tests.soak.shared_processes SET=FILE…`.

Judges gold programs and mutants of them, by mechanical changes of their source, both ways on the same
inputs. A difference is explained by state if the input that differs, alone in a new process that could
take more, ends as in a process per input. Prints a line of JSON per set; exit code 1 if a difference has
no such explanation.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from coding_model_project.data.loaders import load
from coding_model_project.errors import OverloadError
from coding_model_project.grading.execution import inputs_of, judge_execution, program_of
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Isolation, Limits, Problem, Test, TestInput
from tests.soak.sources import SOURCES

LIMITS = Limits(cpu_s=2.0, wall_s=10.0, memory_mb=1024, output_kb=4096)

STATE = SOURCES["state"]
"""An end of a program that keeps state: it must differ."""


class _Changes(ast.NodeTransformer):
    """One change of a program, at the `at`-th place that allows one."""

    def __init__(self, at: int) -> None:
        self.left = at

    def _is_here(self) -> bool:
        self.left -= 1
        return self.left == -1

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and self._is_here():
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        swaps = {
            ast.Lt: ast.LtE,
            ast.LtE: ast.Lt,
            ast.Gt: ast.GtE,
            ast.GtE: ast.Gt,
            ast.Eq: ast.NotEq,
        }
        if type(node.ops[0]) in swaps and self._is_here():
            node.ops[0] = swaps[type(node.ops[0])]()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        swaps = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Mod: ast.FloorDiv}
        if type(node.op) in swaps and self._is_here():
            node.op = swaps[type(node.op)]()
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if self._is_here():
            return ast.copy_location(ast.Pass(), node)
        return node


def mutants(source: str, n: int, draw: random.Random) -> list[str]:
    """Return up to `n` programs that differ from a source in one place."""
    tree = ast.parse(source)
    counter = _Changes(10**9)
    counter.visit(copy.deepcopy(tree))
    n_places = 10**9 - counter.left
    found = []
    for at in draw.sample(range(n_places), min(n, n_places)):
        changed = _Changes(at).visit(copy.deepcopy(tree))
        found.append(ast.unparse(ast.fix_missing_locations(changed)))
    return found


class Differences:
    """The comparison of one set."""

    def __init__(self, sandbox: EmbeddedSandbox) -> None:
        self._sandbox = sandbox
        self.counts: Counter[str] = Counter()
        self.unexplained: list[str] = []

    async def compare(self, problem: Problem, code: str, kind: str) -> None:
        """Judge one program both ways, and explain what differs; skip what a busy machine ends."""
        try:
            await self._compare(problem, code, kind)
        except OverloadError:
            self.counts["programs that the machine ended"] += 1

    async def _compare(self, problem: Problem, code: str, kind: str) -> None:
        apart = await self._ends(problem, code, Isolation.per_test)
        shared = await self._ends(problem, code, Isolation.shared)
        self.counts[f"{kind}: programs"] += 1
        self.counts["inputs"] += len(apart)
        self.counts["failed inputs"] += sum(end != "None" for end in apart)
        differing = [
            i for i, ends in enumerate(zip(apart, shared, strict=True)) if len({*ends}) > 1
        ]
        self.counts[f"{kind}: programs that differ"] += bool(differing)
        for i in differing:
            again = await self._ends(problem, code, Isolation.per_test, [i])
            alone = await self._ends(problem, code, Isolation.shared, [i, i])
            if alone[0] == apart[i]:
                self.counts["differences by state"] += 1
            elif again[0] != apart[i]:
                self.counts["differences also between two processes"] += 1
            else:
                said = f"{problem.id} {kind}, input {i}: apart {apart[i]}, shared {shared[i]}"
                self.unexplained.append(said)
                print(f"{said}\n{code}", file=sys.stderr, flush=True)

    async def _ends(
        self, problem: Problem, code: str, isolation: Isolation, which: Sequence[int] | None = None
    ) -> list[str]:
        tests: list[Test] = [problem.tests[i] for i in which or range(len(problem.tests))]
        inputs: list[TestInput] = inputs_of(tests, isolation)
        found = await self._sandbox.run(program_of(problem, code), inputs, LIMITS)
        judged = (judge_execution(*both, problem) for both in zip(tests, found, strict=True))
        return [str(one.error) for one in judged]


async def compared(name: str, path: str, arguments: argparse.Namespace) -> bool:
    """Compare on a set; print its line, and return whether all differences are explained."""
    draw, until = random.Random(name), time.monotonic() + arguments.seconds
    problems = list(load(name, path=path).problems)
    draw.shuffle(problems)
    async with EmbeddedSandbox(workers=arguments.workers) as sandbox:
        differences, free = Differences(sandbox), asyncio.Semaphore(arguments.workers)

        async def one(problem: Problem) -> None:
            tests = draw.sample(problem.tests, min(arguments.inputs, len(problem.tests)))
            problem = replace(problem, tests=tuple(tests))
            gold = problem.gold[0]
            stateful = gold + STATE.format(name=problem.entry_point)
            programs = [("gold", gold), ("stateful", stateful)]
            programs += [("mutant", one) for one in mutants(gold, arguments.mutants, draw)]
            async with free:
                if time.monotonic() < until:
                    differences.counts["problems"] += 1
                    for kind, code in programs:
                        await differences.compare(problem, code, kind)

        await asyncio.gather(*map(one, problems))
    print(json.dumps({"set": name, "of": len(problems), **differences.counts,
                      "unexplained": len(differences.unexplained)}), flush=True)  # fmt: skip
    return not differences.unexplained


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sets", nargs="+", metavar="SET=FILE")
    parser.add_argument("--inputs", type=int, default=40, help="Most inputs of a problem.")
    parser.add_argument("--mutants", type=int, default=6, help="Mutants of each gold program.")
    parser.add_argument("--seconds", type=float, default=3600, help="Wall time of a set.")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    pairs = [one.partition("=") for one in arguments.sets]
    fine = [asyncio.run(compared(name, str(Path(path)), arguments)) for name, _, path in pairs]
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
