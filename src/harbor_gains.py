"""Write the gains of training runs over seeds into a page, below its line `## Result`.

    python src/harbor_gains.py experiment_design/tinyshell.md block=outputs/block tools=outputs/tools

A folder holds a run per seed, as written by a sweep. Each run's gain is from its first validation to its
last, paired by problem; runs without two validations are named. Exit codes: 0 done, 2 wrong usage.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from coding_model_project.evaluation.gain import Gain, gain
from coding_model_project.evaluation.intervals import hierarchical_interval
from coding_model_project.runs.folder import RunFolder, State
from coding_model_project.runs.overview import summarise
from coding_model_project.runs.rollouts import read_rollouts

RESULT = "## Result\n"
CLAIMED = 3
"""Minimum number of seeds for a claim, as in studies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A finished run."""

    run: RunFolder
    gain: Gain
    rates: dict[int, dict[str, float]]
    """Accepted share of each validation problem, by step."""

    @property
    def name(self) -> str:
        return self.run.path.name.rpartition("seed_")[2].rpartition("seed=")[2]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, help="Write into this page.")
    parser.add_argument("arms", nargs="+", type=arm, metavar="NAME=FOLDER", help="Read these runs.")
    arguments = parser.parse_args()
    page: Path = arguments.page
    head = page.read_text().partition(RESULT)[0].rstrip("\n")
    text = "\n".join(line for name, folder in arguments.arms for line in section(name, folder))
    page.write_text(f"{head}\n\n{RESULT}\n{text}")
    return 0


def arm(given: str) -> tuple[str, Path]:
    """Parse NAME=FOLDER.

    Raises:
        ValueError: it has no "=".
    """
    name, equals, folder = given.partition("=")
    if not equals:
        raise ValueError(given)
    return name, Path(folder)


def section(name: str, folder: Path) -> Iterator[str]:
    """Yield the lines about one setting."""
    paths = sorted(path for path in folder.glob("*") if (path / "run.json").exists())
    read = [(path, seed_of(path)) for path in paths]
    seeds = [seed for _, seed in read if seed is not None]
    yield f"### `{name}`\n"
    for path, seed in read:
        if seed is None:
            yield f"`{path.name}` has not finished and counts nowhere.\n"
    if not seeds:
        yield "Not run yet.\n"
        return
    yield from gains(seeds)
    yield "| seed | tokens generated | trained on | judge s | wall s |\n|---|---|---|---|---|"
    for seed in seeds:
        cost = summarise(seed.run)
        tokens = cost["tokens"]
        numbers = (tokens["generated"], tokens["trained"], cost["judge_s"], cost["seconds"])
        yield f"| {seed.name} | {' | '.join(f'{number:,.0f}' for number in numbers)} |"
    yield ""


def gains(seeds: Sequence[Seed]) -> Iterator[str]:
    """Yield the table of gains, and the gain over all seeds."""
    first, last = seeds[0].gain.before.step, seeds[0].gain.after.step
    yield (
        f"| seed | step {first} | step {last} | gain, 95% interval | p | problems |\n"
        "|---|---|---|---|---|---|"
    )
    for seed in seeds:
        before, after, test = seed.gain.before, seed.gain.after, seed.gain.test
        yield (
            f"| {seed.name} | {before.rate:.1%} | {after.rate:.1%} | {test.delta:+.1%} "
            f"({test.low:+.1%} to {test.high:+.1%}) | {test.p_value:.2g} | {test.n_problems} |"
        )
    deltas = [seed.gain.test.delta for seed in seeds]
    spread = f" ± {stdev(deltas):.1%}" if len(deltas) > 1 else ""
    common = sorted(
        set.intersection(*(set(seed.rates[last]) & set(seed.rates[first]) for seed in seeds))
    )
    whole = hierarchical_interval(rates(seeds, first, common), rates(seeds, last, common))
    of = "seeds and problems" if len(seeds) > 1 else "problems"
    yield (
        f"\nOver {len(seeds)} seed{'s' if len(seeds) > 1 else ''}: {fmean(deltas):+.1%}{spread}, 95% "
        f"interval over {of} {whole.low:+.1%} to {whole.high:+.1%} ({len(common)} problems that every "
        "validation could judge).\n"
    )
    if len(seeds) < CLAIMED:
        yield f"Descriptive: a claim takes {CLAIMED} seeds.\n"


def rates(seeds: Sequence[Seed], step: int, problems: Sequence[str]) -> NDArray[np.float64]:
    """Return accepted shares, shape (seeds, problems)."""
    return np.array([[seed.rates[step][name] for name in problems] for seed in seeds])


def seed_of(path: Path) -> Seed | None:
    """Read a run; return None if it has not finished or has fewer than two validations."""
    run = RunFolder(path)
    found = gain(path) if run.state is State.finished else None
    if found is None:
        return None
    samples: dict[int, dict[str, list[bool]]] = {}
    for row in read_rollouts(path):
        if row.split == "validation":
            of_step = samples.setdefault(row.step, {})
            of_step.setdefault(row.problem, []).append(row.verdict["error"] is None)
    shares = {
        step: {name: fmean(one) for name, one in some.items()} for step, some in samples.items()
    }
    return Seed(run=run, gain=found, rates=shares)


if __name__ == "__main__":
    raise SystemExit(main())
