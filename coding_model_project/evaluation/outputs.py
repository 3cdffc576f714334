"""An evaluation's outputs besides its samples: metrics, readable logs, the report, W&B."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from coding_model_project.atomic import write_json, write_lines, write_text
from coding_model_project.contained import file_name
from coding_model_project.errors import FilteredError, PromptError
from coding_model_project.evaluation.journal import storage_errors
from coding_model_project.evaluation.plan import DataSet, EvalProtocol, Sample
from coding_model_project.evaluation.results import METRICS, Generated, Metrics, Result
from coding_model_project.evaluation.scores import dataset_metrics, part_metrics
from coding_model_project.grading.prompts import solve_messages
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.overview import summarise
from coding_model_project.runs.rollouts import ROLLOUTS, Rollout
from coding_model_project.types import Problem

REPORT = "report.html"
UNGRADABLE = "ungradable"
"""Error type of samples without a verdict."""
N_LOGGED = 4
"""Samples per problem in qa_logs/."""
N_TABLE = 2_000
"""Maximum rows of the W&B table."""

Judged = tuple[Sample, Generated, Result]
Report = Callable[[Sequence[RunFolder], Path], object]
"""`reports.write_report`, which is in a room below this one."""


def write_all(
    folder: Path,
    judged: Sequence[Judged],
    datasets: Sequence[DataSet],
    protocol: EvalProtocol,
    cutoff: str | None,
) -> Metrics:
    """Write metrics.json, its values in metrics.jsonl for `runs` and the report, rollouts.jsonl
    in the samples' order, qa_logs/, and summary.json: results and cost.

    Args:
        cutoff: see `scores.part_metrics`.

    Returns:
        The content of metrics.json: `scores.dataset_metrics` and `scores.part_metrics` by data set.
    """
    metrics: Metrics = {}
    for data in datasets:
        if found := [result for _, _, result in judged if result.dataset == data.name]:
            parts = part_metrics(found, data.problems, protocol.ks, cutoff)
            metrics[data.name] = dataset_metrics(found, protocol.ks) | parts
    write_json(folder / METRICS, metrics)
    line = {"step": 0, "data": _logged(metrics, protocol)}
    write_text(folder / "metrics.jsonl", json.dumps(line) + "\n")
    rollouts = (
        rollout_of(sample.problem, generated, result, protocol)
        for sample, generated, result in judged
    )
    write_lines(folder / ROLLOUTS, rollouts)
    write_qa_logs(folder, judged, protocol)
    brief = ("pass@k", "pass_ratio", "graded", "ungradable")
    summary = summarise(RunFolder(folder)) | {
        "samples": len(judged),
        "tokens": {
            "generated": sum(found["tokens"]["total"] for found in metrics.values()),
            "trained": 0,
        },
        "judge_s": sum(found["judge_s"]["total"] for found in metrics.values()),
        "datasets": {name: {key: of[key] for key in brief} for name, of in metrics.items()},
    }
    write_json(folder / "summary.json", summary)
    return metrics


def notes(metrics: Metrics, protocol: EvalProtocol, results: Sequence[Result]) -> Iterator[str]:
    """Yield lines about each data set's prompts that the model cannot answer, answers without a token,
    and answers that the token limit cut off."""
    no_prompt = (PromptError.__name__, FilteredError.__name__)
    reasons = {
        one.dataset: one.ungradable
        for one in reversed(results)
        if one.ungradable and one.ungradable.startswith(no_prompt)
    }
    silent = Counter(one.dataset for one in results if one.passed is not None and not one.tokens)
    for name, found in metrics.items():
        whole = f"{found['samples']:,}"
        if unanswered := found["refused"] + found["filtered"]:
            yield (
                f"{name}: {unanswered:,} of {whole} prompts got no answer and are in no rate "
                f"({reasons[name]})"
            )
        if silent[name]:
            yield (
                f"{name}: {silent[name]:,} of {whole} answers have no token and count as no_code; some "
                "servers answer so to a prompt that exceeds their context"
            )
        if cut := found["truncated"]:
            begun = found["truncated_in_reasoning"]
            yield (
                f"{name}: {cut:,} of {whole} answers were cut off by "
                f"max_tokens={protocol.sampling.max_tokens}"
                + (f", {begun:,} before an answer began" if begun else "")
                + "; they are judged as they are. Another --max-tokens changes the protocol hash"
            )


def _logged(metrics: Mapping[str, Mapping[str, Any]], protocol: EvalProtocol) -> dict[str, float]:
    """Return rates by the metric names of training validation; a set without a verdict has none."""
    n = protocol.sampling.n
    metrics = {name: found for name, found in metrics.items() if found["graded"]}
    data = {f"val-core/{name}/acc/mean@{n}": found["accepted"] for name, found in metrics.items()}
    for name, found in metrics.items():
        data |= {f"val-aux/{name}/pass@{k}": r["value"] for k, r in found["pass@k"].items()}
        data |= {f"val-aux/{name}/{error}": share for error, share in found["errors"].items()}
    return data


def rollout_of(
    problem: Problem, generated: Generated, result: Result, protocol: EvalProtocol
) -> Rollout:
    """Return a judged sample as a line of rollouts.jsonl."""
    if result.ungradable is None:
        verdict = {**result.verdict, "error": result.error}
    else:
        verdict = {"error": UNGRADABLE, "detail": result.ungradable}
    return Rollout(
        step=0,
        attempt=1,
        split=result.dataset,
        problem=result.problem,
        sample=str(result.sample),
        prompt=prompt_text(problem, protocol),
        completion=generated.completion,
        tokens=generated.tokens,
        reward=float(bool(result.passed)),
        reward_parts={},
        verdict=verdict,
        generated_at=generated.at,
        graded_at=result.at,
        extra=({"truncated": True} if generated.truncated else {})
        | ({"reasoning": generated.reasoning} if generated.reasoning else {})
        | ({"attempts": generated.attempts} if generated.attempts else {}),
    )


def prompt_text(problem: Problem, protocol: EvalProtocol) -> str:
    """Return the prompt's text without the chat template's own tokens."""
    messages = solve_messages(problem, style=protocol.prompt, system=protocol.system_prompt)
    return "\n\n".join(message["content"] for message in messages)


def write_qa_logs(folder: Path, judged: Sequence[Judged], protocol: EvalProtocol) -> None:
    """Write qa_logs/<data set>.md: each prompt, its first answers, and their verdicts."""
    (folder / "qa_logs").mkdir(exist_ok=True)
    for name, of_set in groupby(judged, key=lambda one: one[0].dataset):
        parts = [f"# {name}\n"]
        for problem, group in groupby(of_set, key=lambda one: one[0].problem):
            every = list(group)
            passed = sum(bool(result.passed) for _, _, result in every)
            parts.append(f"## {problem.id}: {passed} of {len(every)} accepted\n")
            parts.append(_quoted(prompt_text(problem, protocol)))
            for sample, generated, result in every[:N_LOGGED]:
                parts.append(f"### sample {sample.number}: {_outcome(result)}\n")
                for attempt in generated.attempts[:-1]:
                    parts.append(_quoted(attempt["completion"]))
                    parts.append(f"observation:\n\n{_quoted(attempt['observation'])}")
                if generated.reasoning:
                    parts.append(f"reasoning:\n\n{_quoted(generated.reasoning)}answer:\n")
                parts.append(_quoted(generated.completion))
        write_text(folder / "qa_logs" / f"{file_name(name)}.md", "\n".join(parts))


def _outcome(result: Result) -> str:
    if result.ungradable is not None:
        return f"ungradable: {result.ungradable}"
    why = result.verdict.get("publisher_differs")
    other = f" (the other rule decides otherwise: {why})" if why else ""
    if result.passed:
        return f"accepted{other}"
    lines = (result.verdict.get("input"), result.verdict.get("detail"))
    detail = " ".join(" ".join(filter(None, lines)).split())
    cut = ", cut off by the token limit" if result.truncated else ""
    cut += " before an answer began" if result.cut_in_reasoning else ""
    return f"{result.error}{cut}{other}" + (f": {detail[:500]}" if detail else "")


def _quoted(text: str) -> str:
    """Return text in a fence longer than any fence within it."""
    fence = "````"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}\n"


def write_report(run: RunFolder, report: Report | None) -> None:
    """Write report.html: charts and samples on a self-contained page.

    Raises:
        StorageError: the page cannot be written.
    """
    if report is not None:
        with storage_errors(run.path):
            report([run], run.path / REPORT)


def log_to_wandb(
    folder: Path,
    metrics: Mapping[str, Any],
    judged: Sequence[Judged],
    protocol: EvalProtocol,
    info: Mapping[str, Any],
) -> None:
    """Log metrics and a table of samples to W&B; by default offline, into the folder."""
    import wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    run = wandb.init(
        project="coding_model_project",
        name=folder.name,
        job_type="evaluation",
        dir=str(folder),
        config=dict(info),
        mode=mode,
    )
    columns: list[Any] = ["dataset", "problem", "sample", "completion"]
    columns += ["passed", "error", "tokens", "judge_s"]
    table = wandb.Table(columns=columns)
    for sample, generated, result in judged[:N_TABLE]:
        table.add_data(
            sample.dataset,
            sample.problem.id,
            sample.number,
            generated.completion,
            result.passed,
            result.error or result.ungradable,
            result.tokens,
            result.judge_s,
        )
    run.log({"samples": table, **_logged(metrics, protocol)})
    run.finish()
