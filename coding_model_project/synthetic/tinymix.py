"""tinymix: programs (tinycode) and sums (`arithmetic`) in one task set, to train with several graders.

<data_dir>/problems.jsonl                    both sets' problems
           rl_{train,validation}.parquet     rows of both, in equal shares
           test.parquet                      held out
           manifest.json                     their settings and counts
           base/                             the tiny model, pre-trained on both corpora
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coding_model_project.data.training import mixing, rows
from coding_model_project.data.training.rows import is_made
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.synthetic import tinycode
from coding_model_project.synthetic.prepare import MANIFEST, write_set
from coding_model_project.synthetic.tiny_model import (
    Conversation,
    Corpus,
    DrawnCorpus,
    StartingModel,
    TinyModelConfig,
)
from coding_model_project.types import Problem

ARITHMETIC_VERSION = 1
"""Increased by each change to the output of `arithmetic`."""

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
def arithmetic(seed: int = 0) -> tuple[Problem, ...]:
    """Generate the sums. The same seed gives the same tasks on every machine."""
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


WEIGHTS = {"tinycode": 1.0, "arithmetic": 1.0}
N_VALIDATION, N_TEST = 75, 200
"""Problems of each set for validation and test."""
HABIT = 0.5
"""The share of sums with the demonstrator's usual mistake."""


def prepare_files(data_dir: Path, *, seed: int, say: Callable[[str], None]) -> None:
    """Write the task set's files, unless the folder already holds them."""
    versions = {"tinycode": tinycode.VERSION, "arithmetic": ARITHMETIC_VERSION}
    settings = {"generator": versions, "seed": seed}
    if is_made(data_dir / MANIFEST, settings):
        return
    say(f"preparing tinymix in {data_dir} (once)")
    sets = (tinycode.generate(seed=seed).tasks, arithmetic(seed))
    problems = [[task.problem for task in sets[0]], list(sets[1])]

    def of(split: str, most: int | None = None) -> list[Problem]:
        return [
            p for members in problems for p in [one for one in members if one.split == split][:most]
        ]

    trains = {problem.id: problem for problem in of("train")}
    order = mixing.shuffled(mixing.mixed(list(trains), WEIGHTS, None, seed), seed)
    written = {
        "rl_train": [trains[name] for name in order],
        "rl_validation": of("validation", N_VALIDATION),
        "test": of("test", N_TEST),
    }
    made = {
        name: rows.rl_rows(chosen, PromptStyle.bare, weights=WEIGHTS)
        for name, chosen in written.items()
    }
    write_set(data_dir, settings, (p for members in problems for p in members), made)


def starting_model(seed: int) -> StartingModel:
    """Return the tiny starting model, which learns noisy programs and habits of arithmetic."""

    def corpus() -> Corpus:
        programs = tinycode.NoisyPrograms(tinycode.generate(seed=seed))
        return Together(programs, Habits(habit=HABIT, seed=seed))

    takes = "four minutes on two idle cores"
    return StartingModel(corpus, takes, TinyModelConfig(steps=700))


class Together:
    """A mixture of corpora (`tiny_model.Corpus`) in equal shares."""

    def __init__(self, *corpora: Corpus) -> None:
        self._corpora = corpora

    def texts(self, rng: random.Random) -> Iterator[str]:
        """See `tiny_model.Corpus`."""
        for corpus in self._corpora:
            yield from corpus.texts(rng)

    def draw(self, rng: random.Random, n: int) -> Sequence[Conversation]:
        """See `tiny_model.Corpus`."""
        return [rng.choice(self._corpora).draw(rng, 1)[0] for _ in range(n)]
