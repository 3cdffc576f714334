"""GSM8K with five worked examples before each question, as lm-evaluation-harness's task `gsm8k` has it.

Each question has other examples: lm-eval draws them from the train split by one generator, with its
default seed, in the order of the test split. Test only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from coding_model_project.data.loaders.base import Place, Published, SetAside, Trail
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.grading.maths import gsm8k_answer
from coding_model_project.types import Problem

SHOTS = 5
SEED = 1234
"""lm-eval's default of `--seed` for examples."""

NAME = "gsm8k_5shot"


@dataclass(frozen=True, slots=True, kw_only=True)
class FewShotLoader:
    """See `base.Loader`."""

    table: TableLoader
    """The questions."""
    examples: TableLoader

    @property
    def published(self) -> Published:
        return self.table.published

    def items(self, place: Place, trail: Trail) -> Iterator[Problem | SetAside]:
        """See `base.Loader.items`.

        Raises:
            ConfigError, DownloadError: the train split, which has the examples, was not found.
        """
        rng = Random(SEED)
        examples: list[str] = []
        for item in self.table.items(place, trail):
            examples = examples or self._examples(place, trail)
            shown = rng.sample(examples, SHOTS)  # also for a row that is set aside, to stay in step
            if isinstance(item, SetAside):
                yield item
                continue
            yield replace(
                item,
                id=item.id.replace("gsm8k/", f"{NAME}/", 1),
                statement="".join(shown) + _asked(item.statement),
                comparison=gsm8k_answer.GSM8K,
            )

    def _examples(self, place: Place, trail: Trail) -> list[str]:
        train = replace(place, path=None, columns={}, split="train")
        try:
            found = list(self.examples.items(train, trail))
        except (ConfigError, DownloadError) as error:
            why = f": {error.__cause__}" if error.__cause__ else ""
            raise type(error)(
                f"{NAME}: its examples are GSM8K's train split, which was not found under "
                f"{place.data_dir} (as gsm8k/train.jsonl or main/train-*.parquet); add it "
                f"({self.published.fetch(place.data_dir)}), or pass its folder (--data-dir){why}"
            ) from error
        return [f"{_asked(p.statement)} {p.gold[0]}\n\n" for p in found if isinstance(p, Problem)]


def _asked(question: str) -> str:
    return f"Question: {question}\nAnswer:"
