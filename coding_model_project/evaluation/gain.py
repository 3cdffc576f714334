"""The gain of a training run: its last validation against its first, paired by problem."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from coding_model_project.evaluation.intervals import PairedTest, paired_test, rate_interval
from coding_model_project.runs.rollouts import read_rollouts

GAIN = "gain.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """The mean share of accepted samples per problem at one step, with its 95% interval."""

    step: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Two validations of a run, over the problems judged in both."""

    before: Validated
    after: Validated
    test: PairedTest
    """Paired test of the later against the earlier validation."""

    def line(self) -> str:
        """Return a one-line summary."""
        rates = ", ".join(
            f"step {v.step}: {v.rate:.1%} ({v.low:.1%} – {v.high:.1%})"
            for v in (self.before, self.after)
        )
        test = self.test
        return (
            f"validation on {test.n_problems} problems: {rates}; {test.delta:+.1%} "
            f"({test.low:+.1%} – {test.high:+.1%}), p = {test.p_value:.2g} (paired by problem)"
        )


def gain(run_dir: Path) -> Gain | None:
    """Return the gain from a run's first validation to its last, or None with fewer than two."""
    steps: dict[int, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in read_rollouts(run_dir):
        if row.split == "validation":
            steps[row.step][row.problem].append(row.verdict["error"] is None)
    if len(steps) < 2:
        return None
    first, last = min(steps), max(steps)
    problems = sorted(steps[first].keys() & steps[last].keys())
    if not problems:
        return None
    rates = {step: [fmean(steps[step][name]) for name in problems] for step in (first, last)}
    before, after = (
        Validated(step=step, rate=fmean(rates[step]), low=interval[0], high=interval[1])
        for step in (first, last)
        for interval in [rate_interval(rates[step])]
    )
    return Gain(before=before, after=after, test=paired_test(rates[last], rates[first]))


def say_gain(run_dir: Path | str, say: Callable[[str], None]) -> None:
    """Print a run's gain and write it to its folder, if the run validated at least twice."""
    found = gain(Path(run_dir))
    if found is not None:
        (Path(run_dir) / GAIN).write_text(json.dumps(asdict(found), indent=2) + "\n")
        say(found.line())
