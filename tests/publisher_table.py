"""The table in docs/benchmarks.md of how publishers' rules differ from this judge's.

python -m tests.publisher_table --write      brings the page up to date

It compares 3,750 made pairs of outputs by both rules. All kinds of differences are equally frequent among
them, so the counts say which way a rule differs, not how often models meet it.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from coding_model_project.data.loaders.rows import Form
from coding_model_project.data.loaders.sets import SETS
from coding_model_project.grading.compare import same_output
from coding_model_project.grading.publishers import difference
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


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    print(table())
