"""Checks of a run's problems: all can be judged here, and each training row names one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.data.problems import ProblemFile
from coding_model_project.data.rates import read_samples
from coding_model_project.data.training.rows import style_of_rows
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.kinds import KINDS
from coding_model_project.grading.prompts import PromptStyle, request
from coding_model_project.launch.checks.episode_checks import has_agent, has_bash
from coding_model_project.types import Problem

_FIRST_ROWS = 64
_FENCE_ASKED = re.compile(r"```|~~~|\bfence|\bblock|\bmarkdown", re.IGNORECASE)
"""Words of a statement that itself asks for a block."""


def readable(paths: Iterable[str]) -> list[Problem]:
    """Read the problems without their hidden tests, and check that their graders can judge them here.

    Raises:
        ConfigError: a problem is invalid; the message names the file, the problem and the fault.
    """
    problems: list[Problem] = []
    for path in paths:
        try:
            for problem in ProblemFile(path).values():
                KINDS[problem.graded_by].check(problem)
                problems.append(replace(problem, tests=problem.public_tests))
        except DataError as error:  # otherwise the reward workers fail a minute later
            raise ConfigError(f"coding.problems: {error}") from error
    return problems


def check(config: DictConfig, problems: Sequence[Problem], train_files: Sequence[str]) -> None:
    """Check training rows against the problems that they name.

    Raises:
        ConfigError: they do not fit; the message names the key and the fix.
    """
    by_id = {problem.id: problem for problem in problems}
    named = _named(train_files, by_id.keys())
    if config.coding.prompt == PromptStyle.bare:
        _check_prompts(train_files, config.data.prompt_key, by_id)
    elif not (has_agent(config) or has_bash(config)):
        _check_style(train_files, config.data.prompt_key, by_id)
    if (given := config.coding.training.rates) is not None:
        _check_rates(given, named)
    if config.coding.reward.shaping.length_weight:
        _check_references([problem for problem in problems if problem.id in named])


def _named(paths: Sequence[str], known: AbstractSet[str]) -> set[str]:
    """Check that each training row's problem exists.

    Returns:
        The problems' ids.

    Raises:
        ConfigError: a problem is missing; the message names the file, the problem and its source.
    """
    import pyarrow.parquet as pq

    all_named: set[str] = set()
    for path in paths:
        if not path.endswith(".parquet"):
            continue
        if "reward_model" not in pq.read_schema(path).names:
            raise ConfigError(
                f"data.train_files: {path} has no column reward_model, which names a row's problem: make "
                "the rows by `python -m coding_model_project data rows`"
            )
        truths = pq.read_table(path, columns=["reward_model"]).column("reward_model")
        named = {str(row["ground_truth"]) for row in truths.to_pylist()}
        all_named |= named
        if missing := sorted(named - known):
            source = missing[0].split("/")[0]
            raise ConfigError(
                f"data.train_files: {path} names {missing[0]} and {len(missing) - 1} more problems that "
                f"no file of coding.problems has: add the file with the problems of {source}"
            )
    return all_named


def _check_prompts(paths: Sequence[str], key: str, problems: Mapping[str, Problem]) -> None:
    """Check that no prompt asks for a fence if the whole completion is the program.

    Checking the first rows suffices: a file is written in one style.

    Args:
        key: the column of the prompts; verl reports a missing one.

    Raises:
        ConfigError: a prompt asks for a fence; the message names the file and both fixes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        if not path.endswith(".parquet") or key not in pq.read_schema(path).names:
            continue
        batches = pq.ParquetFile(path).iter_batches(_FIRST_ROWS, columns=[key, "reward_model"])
        for row in next(batches, pa.RecordBatch.from_pylist([])).to_pylist():
            problem = problems[str(row["reward_model"]["ground_truth"])]
            prompt = row[key][-1]["content"] if row[key] else ""
            if (end := request(problem)) and isinstance(prompt, str) and prompt.endswith(end):
                raise ConfigError(
                    f"coding.prompt=bare: the prompts of {path} ask for a fenced block, and nearly every "
                    "reward would be 0: make the rows by `data rows --prompt bare`, or set "
                    "coding.prompt=fenced"
                )


def _check_style(paths: Sequence[str], key: str, problems: Mapping[str, Problem]) -> None:
    """Check that no file was made with `--prompt bare` if a program must be in a fenced block.

    Only files that their manifest names with this content are checked, and a statement of one's own may
    ask for the block itself.

    Args:
        key: the column of the prompts.

    Raises:
        ConfigError: a file was made for bare programs; the message names the file and both fixes.
    """
    import pyarrow.parquet as pq

    for path in paths:
        if (
            style_of_rows(Path(path)) is not PromptStyle.bare
            or key not in pq.read_schema(path).names
        ):
            continue
        batches = pq.ParquetFile(path).iter_batches(_FIRST_ROWS, columns=[key, "reward_model"])
        prompts = [
            str(row[key])
            for row in next(batches).to_pylist()
            if "```" in request(problems[str(row["reward_model"]["ground_truth"])])
        ]
        if prompts and not any(map(_FENCE_ASKED.search, prompts)):
            raise ConfigError(
                f"coding.prompt=fenced: the rows of {path} were made by --prompt bare and ask for no "
                "fenced block, and nearly every reward would be 0: make the rows by `data rows --prompt "
                "fenced`, or set coding.prompt=bare"
            )


def _check_rates(path: str, named: AbstractSet[str]) -> None:
    """Check that measured rates belong to these training rows.

    Raises:
        ConfigError: the file has no rates, or those of another data set.
    """
    try:
        known = read_samples(path)
    except ConfigError as error:
        message = str(error).removeprefix("--rates: ")
        raise ConfigError(f"coding.training.rates: {message}") from error
    if not known.keys() & named:
        raise ConfigError(
            f"coding.training.rates={path}: a file of another data set: it has "
            f"{next(iter(known), 'nothing')}, the training rows {min(named)}"
        )


def _check_references(problems: Sequence[Problem]) -> None:
    """Check that problems have reference solutions to compare lengths with.

    Raises:
        ConfigError: no problem has one.
    """
    without = [problem for problem in problems if problem.asks_for_code and not problem.gold]
    if problems and len(without) == len(problems):
        raise ConfigError(
            "coding.reward.shaping.length_weight: no training problem has a reference solution (field "
            "gold), so no program would earn the bonus: add them, or set it to 0"
        )
    if without:
        print(
            f"coding.reward.shaping.length_weight: {len(without)} of {len(problems)} training problems "
            "have no reference solution (field gold); their programs earn no bonus for being short"
        )
