"""The table in docs/benchmarks.md of how publishers' rules differ from this judge's.

python -m tests.publisher_table --write      brings the page up to date

It compares 3,750 made pairs of outputs by both rules. All kinds of differences are equally frequent among
them, so the counts say which way a rule differs, not how often models meet it.
"""

import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

from coding_model_project.data.loaders.rows import Form
from coding_model_project.data.loaders.sets import SETS
from coding_model_project.grading.compare import same_output
from coding_model_project.grading.readings import RULES

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PAIRS = Path(__file__).parent / "frozen" / "publishers.jsonl.gz"
START, END = "<!-- Made by: python -m tests.publisher_table --write -->\n", "<!-- end -->\n"
_SHOWN = 4
"""Classes of differences that are named, each way."""


def table() -> str:
    """The table in Markdown."""
    with gzip.open(PAIRS, "rt") as file:
        _, *rows = map(json.loads, file)
    pairs = [(expected, got) for _, expected, got, _ in rows]
    lines = [
        "| rule of | sets | equal | accepted only by the publisher | accepted only here |",
        "|---|---|---|---|---|",
    ]
    for key, rule in RULES.items():
        if rule.same_output is None:
            continue
        forms = {name: form for name, form in _forms() if form.publisher == key}
        sets, (form, *_) = list(forms), forms.values()
        more, less = Counter[str](), Counter[str]()
        for expected, got in pairs:
            theirs = rule.same_output(expected, got)
            if theirs is not same_output(expected, got, form.comparison):
                (more if theirs else less)[difference(expected, got)] += 1
        equal = 1 - (more.total() + less.total()) / len(pairs)
        names = ", ".join(f"`{name}`" for name in _short(sets))
        lines.append(
            f"| {rule.name} | {names} | {equal:.1%} | {_classes(more)} | {_classes(less)} |"
        )
    return "\n".join(lines)


def _forms() -> Iterator[tuple[str, Form]]:
    for name, loader in SETS.items():
        if isinstance(form := getattr(loader, "to_problem", None), Form):
            yield name, form


def _short(sets: list[str]) -> Iterator[str]:
    """Yield the names without the versions of a set that is there itself."""
    yield from (one for one in sets if not any(one.startswith(f"{other}_") for other in sets))


def _classes(counts: Counter[str]) -> str:
    if not counts:
        return "none"
    shown = [f"{name} ({n})" for name, n in counts.most_common(_SHOWN)]
    return f"{counts.total():,}: {', '.join(shown)}{', …' if len(counts) > _SHOWN else ''}"


def page() -> str:
    """The whole page, with the table up to date."""
    before, _, rest = PAGE.read_text().partition(START)
    return f"{before}{START}\n{table()}\n\n{END}{rest.partition(END)[2]}"


# ── classes of differences ────────────────────────────────────────────────────────────────────────


def difference(expected: str, got: str) -> str:
    """Return the name in `CLASSES` for what distinguishes an output from the expected text.

    It explains a disagreement between two rules, so it is only called for one.
    """
    wanted, found = expected.split(), got.split()
    if wanted == found:
        one, other = (
            [line.split() for line in text.strip().split("\n")] for text in (expected, got)
        )
        return "blanks in lines" if one == other else "by lines"
    if len(wanted) == len(found):
        pairs = [pair for pair in zip(wanted, found, strict=True) if pair[0] != pair[1]]
        for name, holds in _OF_WORDS.items():
            if all(holds(*pair) for pair in pairs):
                return name
    return next((name for name, holds in _OF_TEXTS.items() if holds(wanted, found)), "otherwise")


def _same_decimals(expected: str, got: str) -> bool:
    try:
        return Decimal(expected) == Decimal(got)
    except ArithmeticError:  # a word is not a number, or a signalling NaN
        return False


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_whole(word: str) -> bool:
    return word.lstrip("+-").isdigit()


def _is_other_script(word: str) -> bool:
    return "_" in word or not word.isascii()


def _within(expected: str, got: str, *, atol: float, rtol: float) -> bool:
    wanted, found = _float(expected), _float(got)
    if wanted is None or found is None or not math.isfinite(wanted):
        return False
    return abs(found - wanted) <= max(atol, rtol * abs(wanted))


def _are_not_finite(expected: str, got: str) -> bool:
    values = _float(expected), _float(got)
    return all(value is not None and not math.isfinite(value) for value in values)


_OF_WORDS: dict[str, Callable[[str, str], bool]] = {
    "case of letters": lambda e, g: e.casefold() == g.casefold(),
    "nan and inf": _are_not_finite,
    "digits of other scripts": lambda e, g: _is_other_script(g) and _same_decimals(e, g),
    "07 for 7": lambda e, g: _is_whole(e) and _is_whole(g) and _same_decimals(e, g),
    "5.0 for 5": lambda e, g: _is_whole(e) and _same_decimals(e, g),
    "digits of floats": _same_decimals,
    "floats exactly": lambda e, g: not _is_whole(e) and _within(e, g, atol=1e-6, rtol=1e-6),
    "long integers as floats": lambda e, g: (
        _is_whole(e) and _is_whole(g) and _within(e, g, atol=0, rtol=1e-5)
    ),
    "tolerance of floats": lambda e, g: _within(e, g, atol=1e-3, rtol=1e-5),
}
"""Classes of texts with equally many words: what is true of each pair of words that differ."""

_OF_TEXTS: dict[str, Callable[[list[str], list[str]], bool]] = {
    "any order": lambda wanted, found: Counter(wanted) == Counter(found),
    "repeated words": lambda wanted, found: set(wanted) == set(found),
    "cut short": lambda wanted, found: wanted[: len(found)] == found,
    "characters for words": lambda wanted, found: set("".join(wanted)) == set("".join(found)),
}

CLASSES = ("blanks in lines", "by lines", *_OF_WORDS, *_OF_TEXTS, "otherwise")
"""Names of all classes of differences."""


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    print(table())
