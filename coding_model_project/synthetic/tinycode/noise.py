"""The pre-training corpus: programs with common mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from coding_model_project.synthetic.tinycode.families import MistakeKind
from coding_model_project.synthetic.tinycode.generator import Task, TinyCode, program


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
