"""tinygolf: tinycode's functions as exported Harbor tasks whose reference solutions are wordy.

The demonstrator writes half of its programs as wordily and half more briefly, so that code golf
(`experiment=golf`) can shorten programs that stay correct.

<data_dir>/tasks/tinycode-NUMBER/            Harbor tasks, tested by assertions as in MBPP
           problems.jsonl                    a problem per task, judged by the task's verifier
           rl_{train,validation}.parquet     rows that ask for the program itself
           test.parquet                      held out
           manifest.json                     their settings and counts
           base/                             the tiny model, pre-trained on the demonstrator's programs
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from coding_model_project.data.loaders.base import Place, Trail
from coding_model_project.data.training import rows
from coding_model_project.data.training.rows import is_made
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor import loader
from coding_model_project.harbor.export.exporting import export, instruction
from coding_model_project.synthetic import tinycode
from coding_model_project.synthetic.prepare import MANIFEST, write_set
from coding_model_project.synthetic.tiny_model import Conversation, DrawnCorpus, StartingModel
from coding_model_project.synthetic.tinycode import Task, in_asserts
from coding_model_project.types import Problem

VERSION = 1
"""Increased by each change to the files."""
SIZES = {"train": 400, "validation": 64, "test": 200}
WORDY = 0.5
"""The share of the demonstrator's programs that are as wordy as the references."""


def wordy(source: str) -> str:
    """Rewrite a function's last `return` with a comment, a result variable and a second line."""
    head, _, value = source.rpartition("    return ")
    return f"{head}    # work out the result\n    result = {value.rstrip()}\n    return result\n"


def prepare_files(data_dir: Path, *, seed: int, say: Callable[[str], None]) -> None:
    """Write the task set's files, unless the folder already holds them."""
    settings = {"tinycode": tinycode.VERSION, "generator": VERSION, "seed": seed, "sizes": SIZES}
    if is_made(data_dir / MANIFEST, settings):
        return
    say(f"preparing tinygolf in {data_dir} (once)")
    for made_of_others in ("tasks", "base"):
        shutil.rmtree(data_dir / made_of_others, ignore_errors=True)
    chosen = {split: _functions(seed, split)[:size] for split, size in SIZES.items()}
    functions = (in_asserts(task.problem) for members in chosen.values() for task in members)
    export(
        (replace(one, gold=tuple(map(wordy, one.gold))) for one in functions), data_dir / "tasks"
    )
    place = Place(path=data_dir / "tasks", data_dir=data_dir)
    made = loader.problems("tinygolf", place, Trail())
    # Relative to the problems' file, so that both can move together.
    problems = [
        replace(one, task=f"tasks/{Path(one.task or '').name}")
        for one in made
        if isinstance(one, Problem)
    ]
    splits = {"rl_train": "train", "rl_validation": "validation", "test": "test"}
    made_rows = {
        name: rows.rl_rows([one for one in problems if one.split == split], PromptStyle.bare)
        for name, split in splits.items()
    }
    write_set(data_dir, settings, problems, made_rows)


def starting_model(seed: int) -> StartingModel:
    """Return the tiny starting model, which learns from the demonstrator."""
    return StartingModel(lambda: Demonstrator(seed=seed), "two minutes on two idle cores")


class Demonstrator(DrawnCorpus):
    """A corpus: training tasks with noisy programs, a share `WORDY` wordy."""

    def __init__(self, *, seed: int) -> None:
        self._tasks, self._noise = _functions(seed, "train"), tinycode.NoiseConfig()
        super().__init__(3 * len(self._tasks))

    def one(self, rng: random.Random) -> Conversation:
        """See `tiny_model.DrawnCorpus`."""
        task = rng.choice(self._tasks)
        asked = instruction(replace(task.problem, statement=rng.choice(task.statements)))
        program = tinycode.noisy_solution(task, rng, self._noise)
        if rng.random() < WORDY and "    return " in program:
            program = wordy(program)
        return [{"role": "user", "content": asked}, {"role": "assistant", "content": program}]


def _functions(seed: int, split: str) -> list[Task]:
    return [task for task in tinycode.generate(seed=seed).split(split) if not task.uses_stdin]
