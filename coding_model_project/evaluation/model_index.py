"""Evaluations as the `model-index` block of a model card, which the Hugging Face Hub reads.

The fields are those of huggingface.co/docs/hub/model-cards: a task, a data set, and its metrics. A
metric's free-form `args` have the interval and the numbers of samples and of ungradable samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from coding_model_project.data.loaders import find
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import Evaluation, read_evaluation, read_metrics

TASK = "text-generation"


def model_index(runs: Sequence[Path], name: str | None = None) -> dict[str, Any]:
    """Return the `model-index` of a model's evaluations.

    Evaluations with the same data set and protocol are seeds: the value is their mean, and `args` has
    their standard deviation instead of an interval.

    Args:
        name: name of the model; by default the last part of the evaluated model's path.

    Raises:
        ConfigError: the runs are of several models and no name is given, or two have the same seed.
        DataError: a run is not a finished evaluation.
    """
    from huggingface_hub import EvalResult, ModelCardData

    read = [(read_evaluation(run), read_metrics(run)) for run in runs]
    models = sorted({evaluation.model for evaluation, _ in read})
    if name is None and len(models) > 1:
        raise ConfigError(
            f"eval export: the runs are of several models ({', '.join(models)}); pass --name MODEL"
        )
    results = [
        EvalResult(
            task_type=TASK,
            dataset_type=_hub(dataset) or dataset,
            dataset_name=dataset,
            dataset_args=_data(seeds[0][0], dataset),
            metric_type=f"pass@{k}",
            metric_value=round(100 * fmean(_values(seeds, k)), 2),
            metric_name=f"pass@{k}, %",
            metric_args=_how(seeds, k),
        )
        for dataset, seeds in _by_set(read)
        for k in sorted(seeds[0][1]["pass@k"], key=int)
    ]
    shown = name or Path(models[0]).name
    card = ModelCardData(model_name=shown, eval_results=results)
    return {"model-index": card.to_dict()["model-index"]}


Seed = tuple[Evaluation, Mapping[str, Any]]
"""An evaluation and its metrics on one data set."""


def _by_set(
    read: Sequence[tuple[Evaluation, Mapping[str, Any]]],
) -> list[tuple[str, list[Seed]]]:
    groups: dict[tuple[str, str, str], list[Seed]] = {}
    for evaluation, metrics in read:
        for dataset, measured in metrics.items():
            version = _data(evaluation, dataset).get("version", "")
            seeds = groups.setdefault((dataset, version, evaluation.protocol_hash), [])
            if any(other.seed == evaluation.seed for other, _ in seeds):
                raise ConfigError(
                    f"eval export: {dataset} has two runs with seed {evaluation.seed}; pass one of "
                    f"{seeds[0][0].path}, {evaluation.path}"
                )
            seeds.append((evaluation, measured))
    return [(dataset, seeds) for (dataset, _, _), seeds in groups.items()]


def _hub(dataset: str) -> str | None:
    """Return the Hub repository of a data set known by name, or None."""
    found = find(dataset)
    return found[0].published.hub if found else None


def _data(evaluation: Evaluation, dataset: str) -> dict[str, Any]:
    data: Any = evaluation.settings["data"]
    kept = ("version", "origin", "problems", "set_aside")
    return {key: data[dataset][key] for key in kept if key in data[dataset]}


def _values(seeds: Sequence[Seed], k: str) -> list[float]:
    return [measured["pass@k"][k]["value"] for _, measured in seeds]


def _how(seeds: Sequence[Seed], k: str) -> dict[str, Any]:
    """Return a value's uncertainty and protocol. Shares are in percent, like the value."""
    evaluation, measured = seeds[0]
    values = _values(seeds, k)
    if len(seeds) > 1:
        uncertainty: dict[str, Any] = {
            "seeds": sorted(evaluation.seed for evaluation, _ in seeds),
            "std": round(100 * stdev(values), 2),
        }
    else:
        one = measured["pass@k"][k]
        uncertainty = {"seeds": [evaluation.seed]}
        if one["low"] is not None:
            bounds = [round(100 * one["low"], 2), round(100 * one["high"], 2)]
            uncertainty["interval"] = "95% score interval over problems"
            uncertainty["low"], uncertainty["high"] = bounds
    return {
        **uncertainty,
        "samples": sum(of["samples"] for _, of in seeds),
        "could_not_be_judged": sum(of["ungradable"] for _, of in seeds),
        "protocol": evaluation.protocol,
        "protocol_hash": evaluation.protocol_hash,
        "grader_version": evaluation.settings.get("grader_version"),
    }
