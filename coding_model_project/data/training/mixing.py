"""Selection and order of training problems: mixtures, curricula, lengths.

Problems are named by their ids.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_model_project.data.files import read_lines
from coding_model_project.data.training.rows import source_of
from coding_model_project.errors import ConfigError


def parse_mixture(text: str) -> dict[str, float]:
    """Parse weights of data sources such as "mbpp=2,tinycode=1".

    Raises:
        ConfigError: the text has another form, or no weight is above zero.
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.partition("=")
        try:
            weights[name.strip()] = float(weight)
        except ValueError:
            raise ConfigError(f"--mixture={text}: {part!r}: expected SOURCE=WEIGHT") from None
    if min(weights.values()) < 0 or not sum(weights.values()) > 0:
        raise ConfigError(f"--mixture={text}: weights must not be negative or all zero")
    return weights


def mixed(
    ids: Sequence[str], weights: Mapping[str, float], size: int | None, seed: int
) -> list[str]:
    """Return problems in shares by the weight of their source.

    Args:
        size: the number of problems; those of a source repeat when it is used up. None returns as many
            as the shares allow without a repeat.

    Raises:
        ConfigError: a source has no weight, or a weighted one has no problems.
    """
    by_source = _by_source(ids)
    rng = random.Random(seed)
    shares = _shares(by_source, weights, size)
    return [one for name, n in shares.items() for one in _drawn(by_source[name], n, rng)]


def mixed_in_order(
    ids: Sequence[str],
    weights: Mapping[str, float],
    size: int | None,
    seed: int,
    order: Sequence[str],
) -> list[str]:
    """Return problems in shares by the weight of their source, which hold in every part of the list.

    Each source keeps its own order.

    Args:
        size: see `mixed`; a source's order restarts when it is used up.
        order: the orders of the sources, in sequence or mixed. A source without a named problem is
            shuffled.

    Raises:
        ConfigError: an id is unknown, a source has no weight, or a weighted one has no problems.
    """
    in_order = _by_source(ordered(ids, order))
    by_source = _by_source(ids) | in_order
    shares = _shares(by_source, weights, size)
    rng = random.Random(seed)
    left = {
        name: itertools.cycle(by_source[name])
        if name in in_order
        else iter(_drawn(by_source[name], n, rng))
        for name, n in shares.items()
    }
    taken = dict.fromkeys(shares, 0)
    chosen = []
    for _ in range(sum(shares.values())):
        name = min(shares, key=lambda one: (taken[one] + 0.5) / shares[one] if shares[one] else 2)
        taken[name] += 1
        chosen.append(next(left[name]))
    return chosen


def _by_source(ids: Sequence[str]) -> dict[str, list[str]]:
    by_source: dict[str, list[str]] = defaultdict(list)
    for name in ids:
        by_source[source_of(name)].append(name)
    return by_source


def _shares(
    by_source: Mapping[str, Sequence[str]], weights: Mapping[str, float], size: int | None
) -> dict[str, int]:
    """Return the number of problems of each source with a positive weight."""
    unknown = by_source.keys() ^ weights.keys()
    if unknown:
        name = sorted(unknown)[0]
        what = "has no weight" if name in by_source else "has no problems"
        raise ConfigError(f"--mixture: {name} {what}; sources are {', '.join(sorted(by_source))}")
    used = {name: weight for name, weight in weights.items() if weight > 0}
    total = sum(used.values())
    if size is None:
        size = int(min(len(by_source[name]) * total / weight for name, weight in used.items()))
    return {name: round(size * used[name] / total) for name in sorted(used)}


def _drawn(ids: Sequence[str], n: int, rng: random.Random) -> list[str]:
    """Draw n problems from repeated shuffles, so that none repeats before all were drawn."""
    drawn: list[str] = []
    while len(drawn) < n:
        drawn += rng.sample(ids, len(ids))
    return drawn[:n]


def shuffled(ids: Sequence[str], seed: int) -> list[str]:
    """Shuffle problems, deterministically for a seed."""
    return random.Random(seed).sample(ids, len(ids))


def read_order(path: str | Path) -> list[str]:
    """Read the ids of a curriculum from a file or URL, one per line, as text or JSON objects with "id".

    Raises:
        ConfigError: a line is neither, or the file is missing.
    """

    def named(line: str) -> str:
        return str(json.loads(line)["id"]) if line.lstrip().startswith("{") else line.strip()

    return read_lines(path, named, option="--order", expected="an id, or an object with 'id'")


def ordered(ids: Sequence[str], order: Sequence[str]) -> list[str]:
    """Return the named problems in that order, as often as named, without the others.

    Raises:
        ConfigError: an id is unknown.
    """
    known = set(ids)
    missing = next((name for name in order if name not in known), None)
    if missing is not None:
        such = f", such as {ids[0]}" if ids else ""
        raise ConfigError(
            f"--order: no problem {missing!r}; expected ids of the given problems{such}"
        )
    return list(order)


def conversation_counter(
    tokenizer: str, key: str = "--tokenizer", **template: Any
) -> Callable[[Sequence[Mapping[str, str]]], int]:
    """Return a function that counts a conversation's tokens, including the chat template.

    A conversation that does not end in an answer includes the generation prompt.

    Args:
        key: the key or option of the tokenizer, for messages.
        template: arguments of transformers' `apply_chat_template`.

    Raises:
        ConfigError: the tokenizer cannot be loaded.
    """
    from transformers import AutoTokenizer

    try:
        loaded: Any = AutoTokenizer.from_pretrained(tokenizer)
    except (OSError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise ConfigError(f"{key}={tokenizer}: cannot be loaded: {line}") from error

    def count(messages: Sequence[Mapping[str, str]]) -> int:
        text = loaded.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=messages[-1]["role"] != "assistant",
            tokenize=False,
            **template,
        )
        return len(loaded(text, add_special_tokens=False, verbose=False)["input_ids"])

    return count
