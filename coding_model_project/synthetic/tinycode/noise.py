"""Programs as a programmer who makes common mistakes would write them: the pre-training corpus."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from coding_model_project.synthetic.tinycode.generator import Task, TinyCode, program
from coding_model_project.synthetic.tinycode.parts import MistakeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConfig:
    """How often each mistake is made, fixed before any training.

    A part's mistake is made with its kind's share, independently of the other parts; a whole-program
    one spoils the finished program. Every correct choice keeps at least 0.3, so that reinforcement
    learning can find it.
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
    """A solution of the task with mistakes drawn by their shares; often none."""
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
    """The corpus (`tiny_model.Corpus`): training tasks in any phrasing, each with a noisy program."""

    def __init__(self, tasks: TinyCode, noise: NoiseConfig | None = None) -> None:
        self._tasks, self._noise = tasks.split("train"), noise or NoiseConfig()

    def texts(self, rng: random.Random) -> Iterator[str]:
        """Every phrasing in its chat frame, and a noisy program for each."""
        for task in self._tasks:
            for statement in task.statements:
                yield f"user\n{statement}\nassistant\n{noisy_solution(task, rng, self._noise)}"

    def draw(self, rng: random.Random, n: int) -> list[list[dict[str, str]]]:
        """Tasks with programs drawn anew each time."""
        drawn = [rng.choice(self._tasks) for _ in range(n)]
        statements = [rng.choice(task.statements) for task in drawn]
        programs = [noisy_solution(task, rng, self._noise) for task in drawn]
        return [
            [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
            for asked, answer in zip(statements, programs, strict=True)
        ]


def spoil(source: str, kind: MistakeKind, rng: random.Random) -> str:
    """The program with one mistake of the whole-program kinds."""
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
