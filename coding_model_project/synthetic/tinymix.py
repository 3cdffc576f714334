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
from pathlib import Path

from coding_model_project.data.training import mixing, rows
from coding_model_project.data.training.rows import is_made
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.synthetic import arithmetic, tinycode
from coding_model_project.synthetic.prepare import MANIFEST, write_set
from coding_model_project.synthetic.tiny_model import (
    Conversation,
    Corpus,
    TinyModelConfig,
    pretrain_once,
)
from coding_model_project.types import Problem

WEIGHTS = {"tinycode": 1.0, "arithmetic": 1.0}
N_VALIDATION, N_TEST = 75, 200
"""Problems of each set for validation and test."""
HABIT = 0.5
"""The share of sums with the demonstrator's usual mistake."""


def prepare_files(data_dir: Path, *, seed: int, say: Callable[[str], None]) -> None:
    """Write the task set's files, unless the folder already holds them."""
    versions = {"tinycode": tinycode.VERSION, "arithmetic": arithmetic.VERSION}
    settings = {"generator": versions, "seed": seed}
    if is_made(data_dir / MANIFEST, settings):
        return
    say(f"preparing tinymix in {data_dir} (once)")
    sets = (tinycode.generate(seed=seed).tasks, arithmetic.generate(seed))
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


def prepare_model(data_dir: Path, *, seed: int, say: Callable[[str], None]) -> None:
    """Pre-train the tiny starting model into `data_dir/base`, unless it exists."""

    def corpus() -> Corpus:
        programs = tinycode.NoisyPrograms(tinycode.generate(seed=seed))
        return Together(programs, arithmetic.Habits(habit=HABIT, seed=seed))

    pretrain_once(
        data_dir,
        corpus,
        TinyModelConfig(steps=1000),
        seed=seed,
        takes="five minutes on two idle cores",
        say=say,
    )


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
