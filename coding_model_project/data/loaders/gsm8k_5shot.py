"""GSM8K with five worked examples before each question, as lm-evaluation-harness's task `gsm8k` has it.

Each question has other examples: lm-eval draws them from the train split by one generator, with its
default seed, in the order of the test split. Test only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from coding_model_project.data.loaders.base import Place, SetAside, Trail
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.grading.maths import gsm8k_answer
from coding_model_project.types import Problem

SHOTS = 5
SEED = 1234
"""lm-eval's default of `--seed` for examples."""


def with_examples(table: TableLoader, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
    """Yield the questions of GSM8K's test split, each with examples of its train split.

    Raises:
        ConfigError, DownloadError: the train split was not found.
    """
    rng = Random(SEED)
    examples: list[str] = []
    for item in table.converted(place, trail):
        examples = examples or _examples(table, place, trail)
        shown = rng.sample(examples, SHOTS)  # also for a row that is set aside, to stay in step
        if isinstance(item, Problem):
            statement = "".join(shown) + _asked(item.statement)
            item = replace(item, statement=statement, comparison=gsm8k_answer.GSM8K)
        yield item


def _examples(table: TableLoader, place: Place, trail: Trail) -> list[str]:
    train = replace(place, path=None, columns={}, split="train")
    try:
        found = list(table.converted(train, trail))
    except (ConfigError, DownloadError) as error:
        why = f": {error.__cause__}" if error.__cause__ else ""
        raise type(error)(
            f"{table.published.name}: its examples are GSM8K's train split, which was not found under "
            f"{place.data_dir} (as gsm8k/train.jsonl or main/train-*.parquet); add it "
            f"({table.published.fetch(place.data_dir)}), or pass its folder (--data-dir){why}"
        ) from error
    return [f"{_asked(p.statement)} {p.gold[0]}\n\n" for p in found if isinstance(p, Problem)]


def _asked(question: str) -> str:
    return f"Question: {question}\nAnswer:"
