"""Reports of an evaluation's trials: summaries, and a table with a line per task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from coding_model_project.evaluation.tables import table_text
from coding_model_project.harbor.evaluation.job_results import Outcome, error_cause, outcome, score
from coding_model_project.harbor.format.trial_results import Timing, TrialResult
from coding_model_project.harbor.integrity import Integrity


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The total cost of trials."""

    prompt_tokens: int = 0
    """Prompt tokens by the server's count: each turn's whole conversation."""
    completion_tokens: int = 0
    turns: int = 0
    agent_s: float = 0.0
    """Wall seconds of model and commands."""
    judge_s: float = 0.0
    """Wall seconds of verifiers."""


def costs(trials: Iterable[TrialResult]) -> Costs:
    """Sum the costs of trials, including errors, which also cost."""
    trials = tuple(trials)
    used = [one for trial in trials for one in trial.usage]
    return Costs(
        prompt_tokens=sum(one.n_input_tokens or 0 for one in used),
        completion_tokens=sum(one.n_output_tokens or 0 for one in used),
        turns=sum(int((one.metadata or {}).get("turns", 0)) for one in used),
        agent_s=round(sum(_seconds(trial, "agent_execution") for trial in trials), 3),
        judge_s=round(sum(_seconds(trial, "verifier") for trial in trials), 3),
    )


def by_source(
    trials: Sequence[TrialResult], sources: Sequence[str]
) -> dict[str, list[TrialResult]]:
    """Group trials by their tasks' data sets, in this order."""
    groups: dict[str, list[TrialResult]] = {name: [] for name in sources}
    for trial in trials:
        groups.setdefault(str(trial.source), []).append(trial)
    return groups


def summary(trials: Sequence[TrialResult]) -> dict[str, Any]:
    """Return counts, rates with their interval, causes and costs.

    "pass_of_all" is the share of all trials, including errors, that passed, as some harnesses report it.
    """
    counted, spent = score(trials), costs(trials)
    return {
        "n_trials": len(trials),
        "n_tasks": counted.n_tasks,
        "n_tasks_without": counted.n_tasks_without,
        "PASS": counted.passed,
        "FAIL": counted.failed,
        "ERROR": sum(counted.errors.values()),
        "failures": _failures(trials),
        "errors": dict(counted.errors),
        "pass_at_k": {str(k): round(value, 4) for k, value in counted.pass_at_k.items()},
        "pass_of_all": round(counted.passed / len(trials), 4) if trials else None,
        "interval": counted.interval,
        "mean_reward": counted.mean_reward,
        "integrity": _integrity(trials),
        **{name: getattr(spent, name) for name in Costs.__dataclass_fields__},
    }


def _integrity(trials: Sequence[TrialResult]) -> dict[str, Any]:
    """Return the trials with a valid reward, and pass@1, per integrity (`harbor.integrity`)."""
    groups: dict[str, list[TrialResult]] = defaultdict(list)
    for trial in trials:
        if outcome(trial) is not Outcome.error and trial.verifier_result is not None:
            groups[trial.verifier_result.integrity or str(Integrity.in_process)].append(trial)
    found: dict[str, Any] = {}
    for name, members in sorted(groups.items()):
        counted = score(members)
        found[name] = {
            "n_trials": len(members),
            "PASS": counted.passed,
            "pass_at_1": round(counted.pass_at_k[1], 4),
        }
    return found


def task_table(trials: Sequence[TrialResult]) -> str:
    """Format a line per task and a total: outcomes, pass@1, costs per trial, and causes."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in ("PASS", "FAIL", "ERROR", "pass@1", "turns", "tokens", "agent s", "judge s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("causes")
    groups: dict[str, list[TrialResult]] = defaultdict(list)
    for trial in trials:
        groups[trial.task_key].append(trial)
    for name, key in sorted(zip(_names(groups), groups, strict=True)):
        table.add_row(name, *_cells(groups[key]))
    table.add_section()
    table.add_row(f"{len(groups)} tasks", *_cells(trials), style="bold")
    return table_text(table)


def _names(groups: Mapping[str, Sequence[TrialResult]]) -> list[str]:
    """Return each group's task name, with its parent folder where several share a name."""
    first = [members[0] for members in groups.values()]
    often = Counter(one.task_name for one in first)
    return [
        one.task_name
        if often[one.task_name] == 1
        else f"{one.task_name} ({Path(str(one.task_id['path'])).parent.name})"
        for one in first
    ]


def _cells(trials: Sequence[TrialResult]) -> list[str]:
    counted, spent, n = score(trials), costs(trials), len(trials)
    rate = counted.pass_at_k.get(1)
    causes = {**_failures(trials), **counted.errors}
    return [
        *(str(counted.passed), str(counted.failed), str(sum(counted.errors.values()))),
        "–" if rate is None else f"{rate:.1%}",
        f"{spent.turns / n:.1f}",
        f"{(spent.prompt_tokens + spent.completion_tokens) / n:,.0f}",
        f"{spent.agent_s / n:.1f}",
        f"{spent.judge_s / n:.1f}",
        ", ".join(f"{number} × {cause}" for cause, number in sorted(causes.items())),
    ]


def _failures(trials: Iterable[TrialResult]) -> dict[str, int]:
    """Count failed trials by how the model's work ended; "done" means the model believed it was."""
    causes: Counter[str] = Counter()
    for trial in trials:
        if outcome(trial) is Outcome.failed:
            endings = [(one.metadata or {}).get("ending") for one in trial.usage]
            last = str(endings[-1]) if endings and endings[-1] else None
            causes[f"ended by {last or error_cause(trial)}"] += 1
    return dict(causes)


def _seconds(trial: TrialResult, part: str) -> float:
    steps = trial.step_results or ()
    found: list[Timing | None] = [getattr(one, part) for one in (trial, *steps)]
    return sum(
        (one.finished_at - one.started_at).total_seconds()
        for one in found
        if one is not None and one.started_at is not None and one.finished_at is not None
    )
