"""Metrics of an evaluation, whole and by budget, difficulty, month and cutoff: what metrics.json has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coding_model_project.errors import FilteredError, PromptError
from coding_model_project.evaluation.intervals import pass_at_k, rate_interval, ratio_values
from coding_model_project.evaluation.results import Metrics, Result
from coding_model_project.types import ERROR_GROUPS, ErrorType, Problem

# ── pass rate by budget ───────────────────────────────────────────────────────────────────────────
#
# Samples are drawn until one is accepted or the budget is spent. For a budget b per problem, the
# probability that the cost of the samples up to and including the first accepted one is at most b. It is
# averaged over random orders of the samples. Intervals are over problems. A cache hit costs what judging
# the program originally cost. A sample with repairs costs as much as all its attempts.

N_ORDERS = 200
"""Random orders per problem."""
_N_POINTS = 12


def curves(groups: Sequence[Sequence[Result]]) -> dict[str, list[dict[str, Any]]]:
    """Compute the pass rate by tokens and by judge-seconds.

    Args:
        groups: each problem's graded results.

    Returns:
        tokens, judge_s: points of `budget` (per problem), `pass_rate`, `low`, `high`. The last
        budget covers all samples of any problem, so its rate is the share of problems solved.
    """
    rng = np.random.default_rng(0)
    solved = [first_accepted_costs(group, rng) for group in groups]
    result: dict[str, list[dict[str, Any]]] = {}
    for column, name in enumerate(("tokens", "judge_s")):
        spent = [costs[:, column] for costs, _ in solved]
        max_cost = max(float(total[column]) for _, total in solved)
        result[name] = [_point(spent, one, name) for one in budgets(spent, max_cost, _N_POINTS)]
    return result


def first_accepted_costs(
    group: Sequence[Result], rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the cost up to a problem's first accepted sample, in random orders of its samples.

    Returns:
        Shape (N_ORDERS, 2): tokens and judge-seconds up to the first accepted sample; infinite if none
        is accepted. Shape (2,): the total cost of all samples.
    """
    judged_s: dict[str | None, float] = {}
    for result in group:
        judged_s[result.program] = max(result.judge_s, judged_s.get(result.program, 0.0))
    costs = [(r.tokens, judged_s[r.program] + r.repair_s) for r in group]
    each = np.array(costs, dtype=np.float64)
    passed = np.array([bool(result.passed) for result in group])
    if not passed.any():
        return np.full((N_ORDERS, 2), np.inf), each.sum(axis=0)
    orders = np.argsort(rng.random((N_ORDERS, len(group))), axis=1)
    first = passed[orders].argmax(axis=1)
    spent = each[orders].cumsum(axis=1)
    return spent[np.arange(N_ORDERS), first], each.sum(axis=0)


def budgets(spent: Iterable[NDArray[np.float64]], largest: float, n: int) -> list[float]:
    """Return `n` budgets in equal ratios, from the cheapest success to the largest; else only that.

    Args:
        spent: by problem, the costs up to the first accepted sample.
    """
    finite = (float(c[np.isfinite(c)].min()) for c in spent if np.isfinite(c).any())
    least = max(min(finite, default=largest), largest / 1000)
    if not 0 < least < largest:
        return [largest]
    return [*map(float, np.geomspace(least, largest, n)[:-1]), largest]


def _point(spent: Sequence[NDArray[np.float64]], budget: float, name: str) -> dict[str, Any]:
    # Sums in different orders may differ in their last digits.
    rates = [float((costs <= budget * (1 + 1e-9)).mean()) for costs in spent]
    low, high = rate_interval(rates)
    return {
        "budget": round(budget) if name == "tokens" else round(budget, 4),
        "pass_rate": sum(rates) / len(rates),
        "low": low,
        "high": high,
    }


# ── metrics of a data set ──────────────────────────────────────────────────────────────────────────


def dataset_metrics(results: Sequence[Result], ks: Sequence[int]) -> Metrics:
    """Return a data set's metrics. Rates are over graded samples.

    Args:
        ks: values of k for pass@k; omits those for which no problem has enough samples.

    Returns:
        problems, samples, graded, ungradable, refused, filtered: counts (refused: prompts too long for
        the model, filtered: by a server's content filter; both included in ungradable);
        problems_ungradable: problems without a graded sample, which are excluded from rates;
        pass@k: unbiased rates by k (`_rate`), with intervals over problems;
        base: pass@k by the benchmark's own tests (`Problem.base_tests`), absent if no problem has any;
        loose: pass@k and pass_ratio by the loose rules, absent for problems without any;
        other_rules: pass@k by the name of each other rule (`Verdict.other_rules`), absent without any;
        instructions: rates over all instructions, as `_instructions` describes, absent without any;
        readings: the rates by the two rules of a published set, as `_readings` describes, absent for sets
        with one rule;
        pass_ratio: rate of the mean share of hidden tests passed, null if judging stopped early;
        accepted and errors: shares of graded samples, which sum to 1 (without any, null and 0);
        truncated, truncated_share; truncated_in_reasoning: truncated samples without the beginning of
        an answer;
        tokens: total, mean and per_problem; reasoning: number of samples with counted reasoning, their
        reasoning tokens (total, mean, share of their tokens) and the number of estimated counts, null
        if unknown; judge_s: total and per_problem; cached: verdicts from the cache;
        repair: rounds (mean repairs per sample), repaired (share accepted after a repair) and
        accepted_by_round (share accepted after at most 0, 1, ... repairs), null without repairs;
        budget: `budget.curves`, with more than one sample per problem.
    """
    graded = [result for result in results if result.passed is not None]
    problems: dict[str, list[Result]] = {result.problem: [] for result in results}
    for result in graded:
        problems[result.problem].append(result)
    groups = [group for group in problems.values() if group]
    errors = Counter(ErrorType(result.error).group for result in graded if result.error)
    total = max(1, len(graded))
    n_samples = max((len(group) for group in groups), default=0)
    return {
        "problems": len(problems),
        "samples": len(results),
        "graded": len(graded),
        "ungradable": len(results) - len(graded),
        "refused": _ungradable_for(PromptError, results),
        "filtered": _ungradable_for(FilteredError, results),
        "problems_ungradable": len(problems) - len(groups),
        "pass@k": pass_rates(groups, ks),
        **{name: rates for name, rates in _other_rates(groups, ks) if rates},
        "pass_ratio": _pass_ratio(groups),
        "accepted": sum(bool(result.passed) for result in graded) / total if graded else None,
        "errors": {str(group): errors[group] / total for group in ERROR_GROUPS},
        "error_types": dict(sorted(Counter(r.error for r in graded if r.error).items())),
        "truncated": sum(result.truncated for result in results),
        "truncated_share": sum(result.truncated for result in results) / max(1, len(results)),
        "truncated_in_reasoning": sum(result.cut_in_reasoning for result in results),
        "reasoning": _reasoning(results),
        "tokens": _cost([result.tokens for result in results], len(problems)),
        "judge_s": _cost([r.judge_s + r.repair_s for r in results], len(problems)),
        "cached": sum(bool(result.verdict.get("cached")) for result in graded),
        "repair": _repair(graded),
        "budget": curves(groups) if n_samples > 1 else None,
    }


def _ungradable_for(error: type[PromptError], results: Sequence[Result]) -> int:
    return sum((result.ungradable or "").startswith(f"{error.__name__}:") for result in results)


def _reasoning(results: Sequence[Result]) -> dict[str, float] | None:
    """Return statistics of reasoning tokens, or None if no back end returned or counted reasoning."""
    known = [(one, one.reasoning_tokens) for one in results if one.reasoning_tokens is not None]
    total = sum(tokens for _, tokens in known)
    if not total:
        return None
    return {
        "samples": len(known),
        "tokens": total,
        "mean": total / len(known),
        "share": total / max(1, sum(one.tokens for one, _ in known)),
        "estimated": sum(one.reasoning_estimated for one, _ in known),
    }


def _repair(graded: Sequence[Result]) -> dict[str, Any] | None:
    """Return statistics of repairs, or None without repairs."""
    max_repairs = max((result.repairs for result in graded), default=0)
    if not max_repairs:
        return None
    accepted = [result.repairs for result in graded if result.passed]
    return {
        "rounds": sum(result.repairs for result in graded) / len(graded),
        "repaired": sum(used > 0 for used in accepted) / len(graded),
        "accepted_by_round": [
            sum(used <= number for used in accepted) / len(graded)
            for number in range(max_repairs + 1)
        ],
    }


def pass_rates(
    groups: Sequence[Sequence[Result]], ks: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Return the rate over problems of each pass@k for which a problem has enough samples.

    Args:
        groups: each problem's graded samples.
    """
    enough = {k: [group for group in groups if len(group) >= k] for k in ks}
    return {
        str(k): _rate([problem_rate(group, k) for group in found])
        for k, found in enough.items()
        if found
    }


def problem_rate(results: Sequence[Result], k: int) -> float:
    """Return a problem's pass@k."""
    return pass_at_k(len(results), sum(bool(one.passed) for one in results), k)


def _with(groups: Sequence[Sequence[Result]], detail: str) -> list[Sequence[Result]]:
    """Return the problems whose every verdict has a detail."""
    return [group for group in groups if all(detail in one.verdict for one in group)]


def _other_rates(
    groups: Sequence[Sequence[Result]], ks: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rates by other readings of the verdicts, empty for problems without one."""
    yield "base", _rates_by(_with(groups, "base_passed"), ks, lambda one: one["base_passed"])
    loosely = _with(groups, "loose_passed")
    if loosely:
        shares = [
            fmean(one.verdict["followed_loosely"] / one.verdict["n_tests"] for one in group)
            for group in loosely
        ]
        rates = _rates_by(loosely, ks, lambda one: one["loose_passed"])
        yield "loose", {"pass@k": rates, "pass_ratio": _rate(shares)}
    by_rules = _with(groups, "other_rules")
    names = by_rules[0][0].verdict["other_rules"] if by_rules else ()
    yield (
        "other_rules",
        {
            name: _rates_by(by_rules, ks, lambda one, name=name: one["other_rules"][name])
            for name in names
        },
    )
    yield "instructions", _instructions(loosely)
    yield "readings", _readings(groups, ks)


def _rates_by(
    groups: Sequence[Sequence[Result]],
    ks: Sequence[int],
    passed: Callable[[Mapping[str, Any]], bool],
) -> dict[str, dict[str, float]]:
    """Return pass@k by another reading of the verdicts."""
    return pass_rates(
        [[replace(r, passed=passed(r.verdict)) for r in group] for group in groups], ks
    )


def _instructions(judged: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """Return rates over instructions, as IFEval's authors define them.

    Empty if there are none, or one for each problem: the rates are then those over problems.

    strict, loose: followed instructions over all instructions (inst_level_strict_acc and
    inst_level_loose_acc), where `pass_ratio` is a mean of problems' shares; strict_mean: the mean of
    `strict` and pass@1 (prompt_level_strict_acc), which some model cards call IFEval.
    """
    if all(one.verdict["n_tests"] == 1 for group in judged for one in group):
        return {}

    def followed(count: str) -> NDArray[np.float64]:
        parts = [fmean(one.verdict[count] for one in group) for group in judged]
        return ratio_values(parts, [fmean(one.verdict["n_tests"] for one in g) for g in judged])

    strict = followed("passed")
    prompts = np.array([fmean(bool(one.passed) for one in group) for group in judged])
    rates = {
        "strict": strict,
        "loose": followed("followed_loosely"),
        "strict_mean": (strict + prompts) / 2,
    }
    return {name: _rate(values) for name, values in rates.items()}


def _readings(groups: Sequence[Sequence[Result]], ks: Sequence[int]) -> dict[str, Any]:
    """Return pass@k by this judge's rule and by the publisher's; empty if no problem has one.

    ours, publisher: pass@k over all problems, also those without a publisher's rule, which both decide
    alike; differ: by reason the number of answers that the publisher's rule decides otherwise, with an
    example, as "problem sample".
    """
    every = [one for group in groups for one in group]
    if not any("publisher_passed" in one.verdict for one in every):
        return {}
    differ: dict[str, list[str]] = {}
    for one in every:
        if why := one.verdict.get("publisher_differs"):
            differ.setdefault(why, []).append(f"{one.problem} {one.sample}")
    return {
        "ours": pass_rates([[one.by_this_judge for one in group] for group in groups], ks),
        "publisher": pass_rates([[one.by_publisher for one in group] for group in groups], ks),
        "differ": {
            why: {"answers": len(found), "example": min(found)}
            for why, found in sorted(differ.items(), key=lambda item: (-len(item[1]), item[0]))
        },
    }


def _pass_ratio(groups: Sequence[Sequence[Result]]) -> dict[str, float] | None:
    """Return the mean share of hidden tests passed, or None if judging stopped early (biased)."""
    if not groups or any(result.pass_fraction is None for group in groups for result in group):
        return None
    return _rate([sum(r.pass_fraction or 0.0 for r in group) / len(group) for group in groups])


def _rate(per_problem: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Return the mean of per-problem rates with its 95% interval and the number of problems."""
    low, high = rate_interval(per_problem)
    value = float(sum(per_problem)) / len(per_problem)
    return {"value": value, "low": low, "high": high, "problems": len(per_problem)}


def _cost(each: Sequence[float], n_problems: int) -> dict[str, float]:
    total = sum(each)
    return {
        "total": round(total, 3),
        "mean": total / max(1, len(each)),
        "per_problem": total / max(1, n_problems),
    }


def rate_text(rate: Mapping[str, float] | None) -> str:
    """Format a rate as "31.2% (24.1–38.4)", or a dash."""
    if rate is None:
        return "–"
    low, high = (percent(rate[end]).removesuffix("%") for end in ("low", "high"))
    return f"{percent(rate['value'])} ({low}–{high})"


def percent(share: float) -> str:
    """Format a share as "71.3%"; halves go up, as in the report's charts and tables."""
    return f"{Decimal(100 * share).quantize(Decimal('0.1'), ROUND_HALF_UP)}%"


# ── parts of a data set ───────────────────────────────────────────────────────────────────────────

MOST_DIFFICULTIES = 10
"""Maximum difficulty levels that are reported as parts; ratings such as 800 to 3500 have more."""

BEFORE, AFTER = "before", "from"


def part_metrics(
    results: Iterable[Result],
    problems: Sequence[Problem],
    ks: Sequence[int],
    cutoff: str | None = None,
) -> Metrics:
    """Return the rates of a data set's parts.

    Args:
        ks: values of k for pass@k.
        cutoff: the last day of a model's training data, such as "2024-09-01".

    Returns:
        by_difficulty: pass@k by level; by_month: pass@k by "2024-08"; cutoff: the day, and pass@k of
        the problems published before it and from it on. Each is absent with fewer than two parts.
    """
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.passed is not None:
            groups[result.problem].append(result)

    def rates(part_of: Callable[[Problem], str | None]) -> dict[str, Mapping[str, Mapping]]:
        parts: dict[str, list[list[Result]]] = defaultdict(list)
        for problem in problems:
            if problem.id in groups and (part := part_of(problem)) is not None:
                parts[part].append(groups[problem.id])
        return {part: pass_rates(parts[part], ks) for part in sorted(parts)}

    found: Metrics = {}
    levels = {one.difficulty for one in problems if one.difficulty is not None}
    if 1 < len(levels) <= MOST_DIFFICULTIES:
        found["by_difficulty"] = rates(
            lambda one: None if one.difficulty is None else str(one.difficulty)
        )
    if len(by_month := rates(lambda one: one.date and one.date[:7])) > 1:
        found["by_month"] = by_month
    if cutoff is not None:
        sides = rates(lambda one: one.date and (BEFORE if one.date < cutoff else AFTER))
        found["cutoff"] = {"day": cutoff, **sides}
    return found
