"""Checks of training rows: their lengths in tokens, and the problems that they name.

Lengths are counted by the model's own tokenizer and chat template: verl cuts a long prompt without an
error, and finds a long conversation of SFT in the middle of training.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.data.problems import ProblemFile
from coding_model_project.data.rates import read_samples
from coding_model_project.data.training.rows import style_of_rows
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.grading.kinds import KINDS
from coding_model_project.grading.prompts import PromptStyle, request, solution_message
from coding_model_project.launch.checks.episode_checks import (
    chat_template,
    has_agent,
    has_bash,
    has_episodes,
)
from coding_model_project.launch.checks.relations import is_embedded
from coding_model_project.types import Problem

_MOST = 500
"""Number of conversations to count; the longest ones, by characters."""
_REFERENCES = 20
_STEP = 32
"""Proposed lengths are multiples of it."""
_LEN = "actor_rollout_ref.rollout.max_model_len"

Conversation = list[dict[str, Any]]
Count = Callable[[Sequence[Mapping[str, Any]]], int]


def check_lengths(
    config: DictConfig, paths: Sequence[str], problems: Sequence[Problem] = ()
) -> int | None:
    """Check that the rows of all files have at most as many tokens as the configuration allows.

    Args:
        paths: the parquet files of training and validation rows.
        problems: those of GRPO; if reference solutions exceed the response's limit, a line says so.

    Returns:
        Tokens of the longest sample; of a pair, both sides. None if verl cuts or drops what is too long,
        if an agent makes the prompts, or if the tokenizer is not here.

    Raises:
        ConfigError: rows are too long; the message names the key, its value and the one to set.
    """
    policy = "actor_rollout_ref" in config
    section = "actor_rollout_ref.model" if policy else "model"
    model = OmegaConf.select(config, section)
    if not _matters(config, model):
        return None
    pairs = "dpo" in config.coding
    key = "max_prompt_length" if policy else "max_length"
    limit = config.data[key]
    longest = heapq.nlargest(
        _MOST,
        _conversations(config, paths),
        key=lambda told: sum(len(str(message["content"])) for message in told),
    )
    if not longest:
        return None
    count = _counter(config, section, model)
    tokens = [count(conversation) for conversation in longest]
    long = sum(n > limit for n in tokens)
    if long == len(tokens) or (long and not pairs):  # long pairs are set aside, if some are left
        few = f"{len(tokens):,}" if len(tokens) < _MOST else f"the {_MOST:,} longest"
        raise ConfigError(
            f"data.{key}={limit}: {long:,} of {few} {'prompts' if policy else 'conversations'} have more "
            f"tokens with this model's chat template (the longest {max(tokens)}): set "
            + _remedy(config, key, max(tokens))
        )
    if not policy:
        return min(max(tokens), limit) * (2 if pairs else 1)
    if not has_episodes(config):
        _compare_references(config, problems, count)
    return max(tokens) + config.data.max_response_length


def _matters(config: DictConfig, model: DictConfig) -> bool:
    data, folder = config.data, Path(str(model.tokenizer_path or model.path)).expanduser()
    cut = "actor_rollout_ref" not in config and data.truncation != "error"
    cut_or_dropped = cut or data.get("filter_overlong_prompts")
    made_for_it = is_embedded(config, str(model.path))
    here = model.custom_chat_template or not folder.is_dir() or chat_template(folder) is not None
    own_prompts = "actor_rollout_ref" in config and (has_agent(config) or has_bash(config))
    return bool(here) and not (cut_or_dropped or made_for_it or own_prompts)


def _conversations(config: DictConfig, paths: Sequence[str]) -> Iterator[Conversation]:
    """Yield the prompts of GRPO's rows, the conversations of SFT's, or both of each pair."""
    import pyarrow.parquet as pq

    data = config.data
    pairs = "dpo" in config.coding
    key = "prompt" if pairs else data.get("prompt_key") or data.get("messages_key") or "messages"
    columns = [key, "chosen", "rejected"] if pairs else [key]
    for path in paths:
        names = pq.read_schema(path).names if path.endswith(".parquet") else []
        if not {*columns} <= {*names} or "tools" in names:
            continue  # verl reports a missing column, and reads rows with tools in its own way
        for batch in pq.ParquetFile(path).iter_batches(columns=columns):
            for row in batch.to_pylist():
                ends = [{"role": "assistant", "content": row[side]} for side in columns[1:]]
                for end in ends or [None]:
                    yield [*row[key], end] if end else row[key]


def _counter(config: DictConfig, section: str, model: DictConfig) -> Count:
    """Return a counter of a conversation's tokens, as verl renders it."""
    from coding_model_project.data.training.mixing import conversation_counter

    template = dict(config.data.get("apply_chat_template_kwargs") or {})
    if model.custom_chat_template:
        template["chat_template"] = model.custom_chat_template
    name = "tokenizer_path" if model.tokenizer_path else "path"
    return conversation_counter(str(model[name]), f"{section}.{name}", **template)


def _remedy(config: DictConfig, key: str, needed: int) -> str:
    """Return the settings of a length that holds so many tokens, and of the rollout's with it."""
    lengths = {name: config.data.get(name) or 0 for name in _PARTS} | {
        key: -(-needed // _STEP) * _STEP
    }
    whole, most = sum(lengths[name] for name in _PARTS), OmegaConf.select(config, _LEN)
    with_rollout = f" {_LEN}={whole}" if key in _PARTS and most and whole > most else ""
    return f"data.{key}={lengths[key]}{with_rollout}"


_PARTS = ("max_prompt_length", "max_response_length")


def _compare_references(config: DictConfig, problems: Sequence[Problem], count: Count) -> None:
    """Print the tokens of the longest reference solution if no response may be so long."""
    limit, asked = config.data.max_response_length, [{"role": "user", "content": "x"}]
    given = [(min(one.gold, key=len), one) for one in problems if one.asks_for_code and one.gold]
    answers = [
        solution_message(code, style=config.coding.prompt, language=one.language)
        for code, one in heapq.nlargest(_REFERENCES, given, key=lambda pair: len(pair[0]))
    ]
    longest = max((count([*asked, answer]) for answer in answers), default=0) - count(asked)
    if longest > limit:
        print(
            f"data.max_response_length={limit}: reference solutions have up to {longest} tokens; to "
            f"allow such programs set {_remedy(config, 'max_response_length', longest)}"
        )


# ── rows and the problems that they name ─────────────────────────────────────────────────────────────


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


def check_problems(
    config: DictConfig, problems: Sequence[Problem], train_files: Sequence[str]
) -> None:
    """Check training rows against the problems that they name.

    Raises:
        ConfigError: they do not fit; the message names the key and the fix.
    """
    by_id = {problem.id: problem for problem in problems}
    named = _named(train_files, by_id.keys())
    if config.coding.prompt == PromptStyle.bare or not (has_agent(config) or has_bash(config)):
        _check_style(config, train_files, by_id)
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


def _check_style(config: DictConfig, paths: Sequence[str], problems: Mapping[str, Problem]) -> None:
    """Check that prompts ask for a fenced block if, and only if, the run takes programs from one.

    The first rows suffice: a file is written in one style. That a file asks for no block is known only of
    one that its manifest names as made by `--prompt bare`; a statement of one's own may ask itself.

    Raises:
        ConfigError: a file is of the other style; the message names the file and both fixes.
    """
    import pyarrow.parquet as pq

    bare, key = config.coding.prompt == PromptStyle.bare, config.data.prompt_key
    for path in paths:
        if not path.endswith(".parquet") or key not in pq.read_schema(path).names:
            continue  # verl reports a missing column
        batches = pq.ParquetFile(path).iter_batches(_FIRST_ROWS, columns=[key, "reward_model"])
        asked = [
            (row[key], request(problems[str(row["reward_model"]["ground_truth"])]))
            for batch in islice(batches, 1)
            for row in batch.to_pylist()
        ]
        texts = [(str(prompt[-1]["content"]) if prompt else "", end) for prompt, end in asked]
        if bare and any(end and text.endswith(end) for text, end in texts):
            raise ConfigError(
                f"coding.prompt=bare: the prompts of {path} ask for a fenced block, and nearly every "
                "reward would be 0: make the rows by `data rows --prompt bare`, or set "
                "coding.prompt=fenced"
            )
        programs = [str(prompt) for prompt, end in asked if "```" in end]
        unasked = programs and not any(map(_FENCE_ASKED.search, programs))
        if not bare and unasked and style_of_rows(Path(path)) is PromptStyle.bare:
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
