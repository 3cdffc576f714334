"""The generator of problems from compositions: phrasing, form, tests, proofs by execution, and splits."""

from __future__ import annotations

import ast
import builtins
import random
from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType
from typing import Any

from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.grading.compare import same_output, same_value
from coding_model_project.synthetic.tinycode_families import Composition, MistakeKind, compositions
from coding_model_project.types import Asserts, Call, Limits, Plain, Problem, Stdin, Test

VERSION = 4
"""Increased by each change to the output of `generate`."""

N_PUBLIC, N_HIDDEN = 3, 8
N_TEST, N_VALIDATION = 400, 400
STDIN_SHARE = 0.25
MAX_BAD = 4
LIMITS = Limits(cpu_s=0.5, wall_s=5.0, memory_mb=256, output_kb=64)
"""Gold takes milliseconds; a step of training waits for each endless program."""

_FUNCTION_PHRASINGS = (
    "Write a function solve({a}) that returns {w}.",
    "Define solve({a}) returning {w}.",
    "Implement solve({a}): give back {w}.",
)
_STDIN_PHRASINGS = {
    "xs": "Read integers xs from a line and print {w}.|Given a line of integers xs, print {w}.|"
    "Input: integers xs in one line. Output: {w}.",
    "n": "Read an integer n and print {w}.|Given an integer n, print {w}.|"
    "Input: an integer n. Output: {w}.",
    "s": "Read a line s and print {w}.|Given a line s, print {w}.|Input: a line s. Output: {w}.",
}
_READ = {"xs": "xs = [*map(int, input().split())]", "n": "n = int(input())", "s": "s = input()"}

_INPUTS: dict[str, tuple[Plain, ...]] = {
    "xs": (
        [], [0], [1, 2, 3], [-4, 10, 11, 5, 5, 3], [12, -7, 9, 0, 6, 6], [10, 20, -3, 15, 4],
        [-1, -2, -3], [7, 7, 14, 21, 5, 10], [5], [-5, 5, -5], [0, 0, 1, 1, 0], [3, 1, 2],
        [-6, -12, 4, 8], [99, -99, 100, -15], [2, 2, 2], [9, 8, 7, 6, 5, 4], [-10, 10, -9, 9],
        [-1, 0, 1], [6, -3, 27, 30, -8],
    ),
    "n": (0, 1, 2, 3, 5, 6, 7, 10, 12, 15, 20, 99, 100, 101, 555, 256, 987, 33, 48),
    "s": (
        "", "a", "Hello World", "abc def", "ABC", "a1b2 c3", "level noon Radar", "x  y",
        "banana Bread and Tea", "42 7", "aAbB zZ", "one two Three four", "Eve saw kayak",
        "90 of 100", "7 Up 77", "go Go gO", "mississippi", "The cat sat", "abca xyzx",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """A composition as a problem, with the phrasings for pre-training."""

    composition: Composition
    problem: Problem
    statements: tuple[str, ...]
    """At least three phrasings; the problem's statement is one of them."""

    @property
    def uses_stdin(self) -> bool:
        return self.problem.entry_point is None


@dataclass(frozen=True, slots=True)
class TinyCode:
    """The task set. Splits are disjoint by composition."""

    tasks: tuple[Task, ...]

    def split(self, name: str) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if task.problem.split == name)

    def problems(self, split: str) -> tuple[Problem, ...]:
        return tuple(task.problem for task in self.split(split))


@lru_cache(maxsize=2)
def generate(seed: int = 0) -> TinyCode:
    """Generate the task set. The same seed gives the same tasks on every machine."""
    tasks = []
    seen: set[str] = set()
    for number, composition in enumerate(compositions()):
        task = _task(composition, random.Random(f"{seed}/{composition.key}"), number)
        if task is None:
            continue
        shape = normalised(task.problem.gold[0])
        if shape not in seen:
            seen.add(shape)
            tasks.append(task)
    return TinyCode(tuple(_with_splits(tasks, random.Random(seed))))


def normalised(source: str) -> str:
    """Return a program's syntax tree with every constant replaced by its type's name."""

    class Normalise(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant(type(node.value).__name__)

    return ast.dump(Normalise().visit(ast.parse(source)))


def program(composition: Composition, body: str, *, stdin: bool) -> str:
    """Make a whole program from a body: a function, or a script that reads and prints."""
    if not stdin:
        return f"def solve({composition.argument}):\n    {body}\n"
    lines = body.replace("\n    ", "\n").split("\n")
    lines[-1] = "print(" + lines[-1].removeprefix("return ") + ")"
    return "\n".join([_READ[composition.argument], *lines]) + "\n"


def _task(composition: Composition, rng: random.Random, number: int) -> Task | None:
    """Make a task; None if no eight inputs distinguish its gold from its mistakes."""
    stdin = rng.random() < STDIN_SHARE
    inputs = _INPUTS[composition.argument]
    gold_body = composition.body()
    gold = outcomes(program(composition, gold_body, stdin=False), inputs)
    if Failed in gold or len({repr(value) for value in gold}) < 4:
        return None  # almost constant: too many wrong programs would pass
    bad_bodies = {}
    codes, hard = [p.code for p in composition.parts], [p.hard for p in composition.parts]
    for slot, p in enumerate(composition.parts):
        if p.mistake is None:
            continue
        body = composition.body((*codes[:slot], p.mistake.code, *codes[slot + 1 :]))
        got = outcomes(program(composition, body, stdin=False), inputs)
        differs = [i for i, value in enumerate(gold) if not same_value(value, got[i])]
        if differs:
            bad_bodies[body] = differs
    chosen = _choose_inputs(list(bad_bodies.values()), len(gold), rng)
    rejected = [
        body for body, differs in bad_bodies.items() if set(differs) & set(chosen[N_PUBLIC:])
    ]
    bad = [program(composition, body, stdin=stdin) for body in rejected][:MAX_BAD]
    gold_source = program(composition, gold_body, stdin=stdin)
    bad += _broken_whole(gold_source)[: max(0, 2 - len(bad))]
    of_stdin = _STDIN_PHRASINGS[composition.argument].split("|")
    statements = tuple(
        phrasing.format(a=composition.argument, w=composition.what)
        for phrasing in (of_stdin if stdin else _FUNCTION_PHRASINGS)
    )
    problem = Problem(
        id=f"tinycode/{number}",
        split="",
        statement=rng.choice(statements),
        tests=tuple(
            _test(inputs[i], gold[i], stdin=stdin, public=position < N_PUBLIC)
            for position, i in enumerate(chosen)
        ),
        limits=LIMITS,
        comparison="tokens",
        entry_point=None if stdin else "solve",
        # 1: easy parts only, 2: medium ones too, 3 to 5: one, two or more hard ones.
        difficulty=min(5, 2 + hard.count(2)) if 2 in hard else 1 + any(hard),
        tags=(composition.family, *(p.key for p in composition.parts)),
        gold=(gold_source,),
        bad=tuple(bad),
    )
    return Task(composition, problem, statements) if proved(problem) else None


def _broken_whole(gold: str) -> list[str]:
    """Return known-bad variants of any gold program: a forgotten answer, a misspelt name."""
    answer = "return " if "return " in gold else "print"
    forgotten = gold.replace(answer, "_ = ", 1)
    misspelt = gold.replace("xs", "sx").replace("solve(sx)", "solve(xs)")
    if misspelt == gold:
        misspelt = gold.replace(
            answer, f"{answer}undefined or " if answer != "print" else "prin", 1
        )
    return [forgotten, misspelt]


def _choose_inputs(differing: list[list[int]], n: int, rng: random.Random) -> list[int]:
    """Choose eleven inputs, public ones first. Hidden ones have the edge case and reveal all mistakes."""
    hidden = [0]  # the empty or smallest input
    for differs in differing:
        if not set(differs) & set(hidden) and len(hidden) < N_HIDDEN:
            hidden.append(rng.choice(differs))
    rest = [i for i in range(n) if i not in hidden]
    rng.shuffle(rest)
    hidden += rest[: N_HIDDEN - len(hidden)]
    public = [i for i in range(n) if i not in hidden]
    rng.shuffle(public)
    return public[:N_PUBLIC] + hidden


def _test(given: Plain, expected: Plain, *, stdin: bool, public: bool) -> Test:
    if not stdin:
        return Test(input=Call(function="solve", args=(given,)), expected=expected, public=public)
    text = " ".join(map(str, given)) if isinstance(given, list) else str(given)
    return Test(input=Stdin(text + "\n"), expected=f"{expected}\n", public=public)


def _with_splits(tasks: list[Task], rng: random.Random) -> list[Task]:
    """Assign splits, stratified by family and difficulty."""
    strata: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        strata[(task.composition.family, task.problem.difficulty)].append(index)
    splits = ["train"] * len(tasks)
    done = 0
    for key in sorted(strata, key=str):
        members = strata[key]
        rng.shuffle(members)
        n_test = _share(N_TEST, done, len(members), len(tasks))
        n_validation = _share(N_VALIDATION, done, len(members), len(tasks))
        done += len(members)
        for index in members[:n_test]:
            splits[index] = "test"
        for index in members[n_test : n_test + n_validation]:
            splits[index] = "validation"
    placed = [
        replace(task, problem=replace(task.problem, split=split))
        for task, split in zip(tasks, splits, strict=True)
    ]
    rng.shuffle(placed)
    return placed


def _share(wanted: int, done: int, members: int, total: int) -> int:
    """Return a stratum's share of `wanted`, rounded so that all shares add up to `wanted`."""
    return round(wanted * (done + members) / total) - round(wanted * done / total)


class Failed:
    """A marker for an exception instead of a value."""


def outcomes(source: str, inputs: tuple[Plain, ...]) -> list[Any]:
    """Return `solve`'s value for each input, or `Failed` if it raises."""
    namespace: dict[str, Any] = {}
    exec(_byte_code(source), namespace)
    values = []
    for given in inputs:
        try:
            values.append(namespace["solve"](copy(given)))
        except Exception:  # noqa: BLE001 - a mistake may raise anything
            values.append(Failed)
    return values


@lru_cache(maxsize=8)
def _byte_code(source: str) -> CodeType:
    return compile(source, "solution", "exec")


def proved(problem: Problem) -> bool:
    """Return whether the gold solution passes all tests and each known-bad one fails a hidden test."""
    if len(problem.bad) < 2 or not all(_passes(problem.gold[0], test) for test in problem.tests):
        return False
    return all(
        not all(_passes(source, test) for test in problem.hidden_tests) for source in problem.bad
    )


def _passes(source: str, test: Test) -> bool:
    """Return whether a program passes a test, as a script or a function."""
    printed: list[str] = []
    namespace: dict[str, Any] = {"__builtins__": builtins}
    given = test.input
    try:
        if isinstance(given, Stdin):
            namespace["input"] = lambda: given.text.removesuffix("\n")
            namespace["print"] = lambda *values: printed.append(" ".join(map(str, values)) + "\n")
            exec(_byte_code(source), namespace)
            return same_output(str(test.expected), "".join(printed), "tokens")
        assert isinstance(given, Call)
        exec(_byte_code(source), namespace)
        (argument,) = given.args
        return same_value(test.expected, namespace["solve"](copy(argument)))
    except Exception:  # noqa: BLE001 - a known-bad program may raise anything
        return False


def in_asserts(problem: Problem) -> Problem:
    """Convert a function's tests to independent assertions; statement and id stay the same.

    `==` accepts 2.0 for 2, so a known-bad program that fails only by that is removed from `bad`.
    """
    tests, given, expected = [], [], []
    for test in problem.tests:
        assert isinstance(test.input, Call)
        name, args = test.input.function, test.input.args
        line = f"assert {name}({', '.join(map(repr, args))}) == {test.expected!r}\n"
        tests.append(Test(input=Asserts(source=line, entry_point=name), public=test.public))
        if not test.public:
            given.append(args[0])
            expected.append(test.expected)
    bad = tuple(source for source in problem.bad if outcomes(source, tuple(given)) != expected)
    return replace(problem, tests=tuple(tests), bad=bad)


# ── the pre-training corpus ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConfig:
    """The shares of mistakes, fixed before any training.

    Each part gets its mistake with its kind's probability, independently of other parts. A whole-program
    mistake changes the finished program. Every correct choice keeps a probability of at least 0.3, so
    that reinforcement learning can find it.
    """

    parts: dict[MistakeKind, float] = field(
        default_factory=lambda: {
            MistakeKind.boundary: 0.58,
            MistakeKind.operator: 0.30,
            MistakeKind.empty_input: 0.60,
            MistakeKind.type: 0.35,
            MistakeKind.order: 0.35,
            MistakeKind.duplicates: 0.55,
            MistakeKind.wrong_builtin: 0.35,
            MistakeKind.off_by_one: 0.40,
            MistakeKind.sign: 0.55,
            MistakeKind.case: 0.35,
        }
    )
    whole: dict[MistakeKind, float] = field(
        default_factory=lambda: {
            MistakeKind.missing_return: 0.02,
            MistakeKind.syntax: 0.02,
            MistakeKind.name_error: 0.02,
            MistakeKind.infinite_loop: 0.01,
        }
    )


def noisy_solution(task: Task, rng: random.Random, noise: NoiseConfig) -> str:
    """Return a solution with mistakes drawn by their shares, often none."""
    codes = tuple(
        p.mistake.code if p.mistake and rng.random() < noise.parts[p.mistake.kind] else p.code
        for p in task.composition.parts
    )
    source = program(task.composition, task.composition.body(codes), stdin=task.uses_stdin)
    draw = rng.random()
    for kind, share in noise.whole.items():
        if draw < share:
            return spoil(source, kind, rng)
        draw -= share
    return source


class NoisyPrograms:
    """A corpus (`tiny_model.Corpus`): training tasks in any phrasing, each with a noisy program."""

    def __init__(self, tasks: TinyCode, noise: NoiseConfig | None = None) -> None:
        self._tasks, self._noise = tasks.split("train"), noise or NoiseConfig()

    def texts(self, rng: random.Random) -> Iterator[str]:
        """Yield every phrasing in its chat frame, with a noisy program."""
        for task in self._tasks:
            for statement in task.statements:
                yield f"user\n{statement}\nassistant\n{noisy_solution(task, rng, self._noise)}"

    def draw(self, rng: random.Random, n: int) -> list[list[dict[str, str]]]:
        """Draw `n` tasks with new noisy programs."""
        drawn = [rng.choice(self._tasks) for _ in range(n)]
        statements = [rng.choice(task.statements) for task in drawn]
        programs = [noisy_solution(task, rng, self._noise) for task in drawn]
        return [
            [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
            for asked, answer in zip(statements, programs, strict=True)
        ]


def spoil(source: str, kind: MistakeKind, rng: random.Random) -> str:
    """Return the program with a whole-program mistake."""
    answer = "return " if "return " in source else "print("
    head, _, tail = source.rpartition(answer)
    match kind:
        case MistakeKind.missing_return:
            return f"{head}r = {tail}" if answer == "return " else f"{head}r = ({tail}"
        case MistakeKind.syntax:
            closed = source.rstrip()
            return closed[:-1] + "\n" if closed[-1] in ")]" else f"{closed} )\n"
        case MistakeKind.name_error:
            if " in " in source:
                return source.replace(" in ", " in y", 1)
            return f"{head}{answer}y{tail}"
        case MistakeKind.infinite_loop:
            indent = "    " if answer == "return " else ""
            lines = head.rstrip(" ").rstrip("\n")
            return f"{lines}\n{indent}while True: pass\n{indent}{answer}{tail}"
    raise ValueError(f"{kind} is not a whole-program mistake")


# ── the loader of tinycode as a data set by name. It generates the tasks ──────────────────────────


def problems(name: str, _place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """Yield the tasks; see `base.LoaderByName`.

    Args:
        name: `tinycode_asserts` gives only the functions, tested by assertions as in MBPP; ids and
            statements are the same.
    """
    as_asserts = name == "tinycode_asserts"
    trail.origins.append(f"generator version {VERSION}, seed 0")
    for task in generate().tasks:
        if as_asserts and task.uses_stdin:
            continue
        yield in_asserts(task.problem) if as_asserts else task.problem
