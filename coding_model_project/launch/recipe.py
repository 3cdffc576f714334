"""Entry points for a recipe's `__main__`; --help answers without importing `launch.run`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coding_model_project.runs.console import reader_may_leave

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from coding_model_project.runs.folder import RunFolder

    CarryOut = Callable[[DictConfig, list[str], RunFolder | None], object]
    """A function of the configuration, the command that started this process, and the run to repeat."""


MAKE_PAIRS = (
    "make it with `python -m coding_model_project data pairs EVALUATION --problems P --out {}`"
)
"""Advice for making a file of preference pairs; {} stands for its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A training recipe.

    `name` is its folder under `recipes/`, whose `config/<name>.yaml` is its primary configuration.
    `model_key` is verl's key of the starting model, which differs between verl's trainers.
    `make_data` is the advice for a missing data file.
    """

    name: str
    model_key: str
    train: Callable[[DictConfig], None]
    make_data: str = ""


def run_recipe(recipe: Recipe, doc: str) -> None:
    """Run a training recipe as a program; see `run_main`."""

    def carry_out(config: DictConfig, command: list[str], repeats: RunFolder | None) -> None:
        from coding_model_project.launch import run

        run.carry_out(recipe, config, command, repeats)

    run_main(recipe.name, doc, carry_out)


@reader_may_leave()
def run_main(name: str, doc: str, carry_out: CarryOut) -> None:
    """Run a recipe as a program and exit with the project's exit codes.

    Args:
        name: its folder under `recipes/`, whose `config/<name>.yaml` is its primary configuration.
        doc: the page that --help prints.
        carry_out: the function that does the work.
    """
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(doc.strip())
        raise SystemExit(0)
    from coding_model_project.launch import run

    run.main(name, carry_out)
