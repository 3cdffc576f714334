"""Maths problems for a tiny model: sums, differences and products of small numbers.

The splits share no pair of numbers and operation. The demonstrator's usual mistakes are forgetting to
carry or borrow, and otherwise counting one too few: reinforcement learning can correct them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from coding_model_project.synthetic.tiny_model import Conversation, DrawnCorpus
from coding_model_project.types import Problem

VERSION = 1
"""Increased by each change to the output of `generate`."""

_LARGEST = {"+": 12, "-": 12, "*": 9}
"""The largest operand of each operation; the smallest is 0."""
_SHARES = {"test": 0.15, "validation": 0.1}
_PHRASINGS = ("Compute {}.", "What is {}?", "{} =")


@dataclass(frozen=True, slots=True)
class Sum:
    """An operation on two numbers."""

    left: int
    operation: str
    right: int

    @property
    def text(self) -> str:
        return f"{self.left} {self.operation} {self.right}"

    @property
    def value(self) -> int:
        match self.operation:
            case "+":
                return self.left + self.right
            case "-":
                return self.left - self.right
            case _:
                return self.left * self.right

    @property
    def slip(self) -> int:
        """The usual wrong answer."""
        match self.operation:
            case "+" if self.left % 10 + self.right % 10 >= 10:
                return self.value - 10
            case "-" if self.left > self.right and self.left % 10 < self.right % 10:
                return self.value + 10
            case "*" if self.left and self.right:
                return self.left * (self.right - 1)
            case _:
                return self.value - 1


@lru_cache(maxsize=2)
def generate(seed: int = 0) -> tuple[Problem, ...]:
    """Generate the task set. The same seed gives the same tasks on every machine."""
    rng = random.Random(seed)
    return tuple(
        Problem(
            id=f"arithmetic/{one.text.replace(' ', '')}",
            split=split,
            statement=rng.choice(_PHRASINGS).format(one.text),
            tests=(),
            answer=str(one.value),
            language="text",
            gold=(_answer(one.value),),
        )
        for one, split in _split(seed)
    )


class Habits(DrawnCorpus):
    """The demonstrator's corpus: training problems in any phrasing.

    Args:
        habit: the share of answers with the usual mistake.
    """

    def __init__(self, *, habit: float, seed: int = 0) -> None:
        self._sums = [one for one, split in _split(seed) if split == "train"]
        self._habit = habit
        super().__init__(len(self._sums))

    def one(self, rng: random.Random) -> Conversation:
        """See `tiny_model.DrawnCorpus`."""
        drawn = rng.choice(self._sums)
        answer = drawn.slip if rng.random() < self._habit else drawn.value
        return [
            {"role": "user", "content": rng.choice(_PHRASINGS).format(drawn.text)},
            {"role": "assistant", "content": _answer(answer)},
        ]


def _answer(value: int) -> str:
    return f"#### {value}\n"


@lru_cache(maxsize=2)
def _split(seed: int) -> list[tuple[Sum, str]]:
    sums = [
        Sum(left, operation, right)
        for operation, largest in _LARGEST.items()
        for left in range(largest + 1)
        for right in range(largest + 1)
    ]
    random.Random(seed).shuffle(sums)
    n_test, n_validation = (round(len(sums) * share) for share in _SHARES.values())
    names = ["test"] * n_test + ["validation"] * n_validation
    names += ["train"] * (len(sums) - len(names))
    return list(zip(sums, names, strict=True))
