"""Evaluations in the forms of other tools: Inspect's logs, and the `model-index` of a model card.

Inspect logs are for `inspect view`, one per run and data set. The fields are those of
https://inspect.aisi.org.uk/eval-logs.html, version 2. A log holds prompts, answers and error types, but
no hidden tests.

The Hugging Face Hub reads `model-index` (huggingface.co/docs/hub/model-cards): a task, a data set, and
its metrics. A metric's free-form `args` have the interval and the numbers of samples, judged and not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import orjson

from coding_model_project.contained import file_name
from coding_model_project.data.loaders import find
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation.results import (
    Evaluation,
    Generated,
    Metrics,
    Result,
    read_evaluation,
    read_metrics,
    with_completions,
)
from coding_model_project.grading.prompts import Message, PromptStyle
from coding_model_project.runs.rollouts import read_rollouts

SCORER = "code_scorer"
"""Name of the scorer in `integrations.inspect`."""

_PACKED = ".eval"
_ALIKE = ("temperature", "top_p", "max_tokens", "top_k", "presence_penalty", "frequency_penalty")
"""Sampling options with the same names in Inspect's generate config."""
_SENT_APART = ("min_p", "repetition_penalty", "chat_template_kwargs")
"""Sampling options without an Inspect equivalent, which go into `extra_body`."""

Log = Mapping[str, Any]


def inspect_logs(runs: Sequence[Path], name: str | None = None) -> list[Log]:
    """Return a log per evaluation and data set.

    Args:
        name: name of the model; by default the evaluated model's.

    Raises:
        DataError: a run is not a finished evaluation, or a file of it is damaged.
    """
    return [log for run in runs for log in _logs(run, name)]


def write_logs(logs: Sequence[Log], out: Path) -> list[Path]:
    """Write logs and return their paths.

    Args:
        out: a file (.json or .eval) for one log, or a folder, whose files get names that Inspect lists.

    Raises:
        ConfigError: there are several logs for one file, or `out` is .eval and Inspect is not installed.
    """
    if out.suffix not in (".json", _PACKED):
        paths = [out / _file_name(log) for log in logs]
    elif len(logs) == 1:
        paths = [out]
    else:
        raise ConfigError(
            f"--out={out}: there are {len(logs)} logs, one per run and data set; pass a folder"
        )
    for log, path in zip(logs, paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == _PACKED:
            _write_packed(log, path)
        else:
            path.write_bytes(orjson.dumps(log, option=orjson.OPT_INDENT_2))
    return paths


def _write_packed(log: Log, path: Path) -> None:
    try:
        from inspect_ai.log import EvalLog, write_eval_log
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--out={path}: .eval files need Inspect, which is not installed; run `pip install "
            "inspect-ai`, or pass a .json file"
        ) from error
    write_eval_log(EvalLog.model_validate(log), str(path))


def _file_name(log: Log) -> str:
    """Return a file name in Inspect's pattern, by which it finds logs in a folder."""
    spec = log["eval"]
    time, task = spec["created"].replace(":", "-"), spec["task"].replace("_", "-")
    return f"{file_name(f'{time}_{task}')}_{spec['task_id']}.json"


def _logs(run: Path, name: str | None) -> Iterator[Log]:
    evaluation, metrics = read_evaluation(run), read_metrics(run)
    model = name or evaluation.model
    samples = _samples(evaluation, model)
    for dataset in evaluation.datasets():
        usage = _usage(int(metrics[dataset]["tokens"]["total"]))
        times = sorted(result.at for result in evaluation.results if result.dataset == dataset)
        yield {
            "version": 2,
            "status": "success",
            "eval": _spec(evaluation, dataset, samples[dataset], model, _time(times[0])),
            "plan": {"steps": [{"solver": "generate"}], "config": _config(evaluation)},
            "results": _results(metrics[dataset]),
            "stats": {
                "started_at": _time(times[0]),
                "completed_at": _time(times[-1]),
                "model_usage": {model: usage} if usage else {},
            },
            "samples": samples[dataset],
        }


def _samples(evaluation: Evaluation, model: str) -> dict[str, list[Log]]:
    """Return the samples by data set, each problem's samples in order.

    Raises:
        DataError: a sample's prompt is not stored.
    """
    judged = with_completions(evaluation.path, evaluation.results)
    samples: dict[str, list[Log]] = {}
    for one in read_rollouts(evaluation.path):
        found = judged.pop((one.split, one.problem, int(one.sample)), None)
        if found is not None:
            conversation = _conversation(one.prompt, evaluation)
            samples.setdefault(one.split, []).append(_sample(*found, conversation, model))
    if judged:
        dataset, problem, number = next(iter(judged))
        raise DataError(
            f"{evaluation.path}: rollouts.jsonl lacks sample {number} of {problem} ({dataset}); run "
            "the evaluation's command again to rewrite it"
        )
    return samples


def _spec(
    evaluation: Evaluation, dataset: str, samples: Sequence[Log], model: str, created: str
) -> dict[str, Any]:
    data: Any = evaluation.settings["data"]
    about = {
        "protocol": evaluation.protocol,
        "protocol_hash": evaluation.protocol_hash,
        "grader_version": evaluation.settings.get("grader_version"),
        "data_version": data[dataset].get("version"),
        "seed": evaluation.seed,
    }
    known_by = orjson.dumps([model, dataset, about])
    ids = list(dict.fromkeys(sample["id"] for sample in samples))
    digest = hashlib.sha256(known_by).hexdigest()[:22]
    return {
        "eval_id": digest,
        "run_id": digest,
        "task_id": digest,
        "created": created,
        "task": dataset,
        "task_args": {"bare": evaluation.settings.get("prompt") == PromptStyle.bare},
        "dataset": {
            "name": dataset,
            "location": data[dataset].get("origin"),
            "samples": len(ids),
            "sample_ids": ids,
            "shuffled": False,
        },
        "model": model,
        "model_generate_config": _config(evaluation),
        "config": {"epochs": max(sample["epoch"] for sample in samples)},
        "scorers": [{"name": SCORER}],
        "metadata": about,
    }


def _config(evaluation: Evaluation) -> dict[str, Any]:
    """Return the recorded sampling options as Inspect's generate config."""
    settings: Mapping[str, Any] = evaluation.settings
    sampling = settings.get("sampling", {})
    apart = {key: sampling[key] for key in _SENT_APART if key in sampling}
    config = {
        **{key: sampling[key] for key in _ALIKE if key in sampling},
        "stop_seqs": sampling.get("stop"),
        "system_message": settings.get("system_prompt"),
        "extra_body": {**settings.get("extra_body", {}), **apart} or None,
    }
    return {key: value for key, value in config.items() if value is not None}


def _conversation(prompt: str, evaluation: Evaluation) -> list[Message]:
    """Return the messages that `outputs.prompt_text` joined."""
    system = evaluation.settings.get("system_prompt")
    user = {"role": "user", "content": prompt.removeprefix(f"{system}\n\n") if system else prompt}
    return [{"role": "system", "content": str(system)}, user] if system else [user]


def _sample(
    generated: Generated, result: Result, conversation: Sequence[Message], model: str
) -> dict[str, Any]:
    content: Any = generated.completion
    if generated.reasoning:
        content = [
            {"type": "reasoning", "reasoning": generated.reasoning},
            {"type": "text", "text": generated.completion},
        ]
    message = {"role": "assistant", "content": content}
    repaired = [
        turn
        for attempt in generated.attempts[:-1]
        for turn in (
            {"role": "assistant", "content": attempt["completion"]},
            {"role": "user", "content": attempt["observation"]},
        )
    ]
    usage = _usage(generated.tokens, generated.reasoning_tokens)
    stop = "max_tokens" if generated.truncated else "stop"
    answered = generated.refused is None
    return {
        "id": generated.problem,
        "epoch": generated.sample + 1,
        "input": conversation,
        "target": "",
        "messages": [*conversation, *repaired, message] if answered else conversation,
        "output": {
            "model": model,
            "choices": [{"message": message, "stop_reason": stop}] if answered else [],
            "completion": generated.completion,
            "usage": usage,
            "time": generated.seconds,
        },
        "metadata": {"seed": generated.seed},
        "model_usage": {model: usage} if usage else {},
        "total_time": generated.seconds,
        **_outcome(result),
    }


def _outcome(result: Result) -> dict[str, Any]:
    """Return a score, or an error for an ungradable sample."""
    if result.passed is None:
        why = {"message": result.ungradable, "traceback": "", "traceback_ansi": ""}
        return {"scores": {}, "error": why}
    score = {
        "value": "C" if result.passed else "I",
        "explanation": result.error,
        "metadata": {"pass_fraction": result.pass_fraction, "error": result.error},
    }
    return {"scores": {SCORER: score}, "error": None}


def _usage(tokens: int, reasoning: int | None = None) -> dict[str, int] | None:
    """Return the generated tokens, or None if unknown."""
    if not tokens:
        return None
    usage = {"output_tokens": tokens, "total_tokens": tokens}
    return usage if reasoning is None else usage | {"reasoning_tokens": reasoning}


def _results(measured: Metrics) -> dict[str, Any]:
    """Return the rates of metrics.json, each with its interval."""
    rates = {f"pass@{k}": rate for k, rate in measured["pass@k"].items()}
    if measured.get("pass_ratio"):
        rates["pass_ratio"] = measured["pass_ratio"]
    counts = {"scored_samples": measured["graded"], "unscored_samples": measured["ungradable"]}
    metrics = {
        name: {
            "name": name,
            "value": rate["value"],
            "metadata": {
                "interval": "95%, over problems",
                "low": rate["low"],
                "high": rate["high"],
            },
        }
        for name, rate in rates.items()
    }
    return {
        "total_samples": measured["samples"],
        "completed_samples": measured["graded"],
        "scores": [{"name": SCORER, "scorer": SCORER, "metrics": metrics, **counts}],
    }


def _time(seconds: float) -> str:
    """Return a time since the epoch as Inspect writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


# ── the model-index of a model card ───────────────────────────────────────────────────────────────

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
            dataset_type=(known[0].published.hub if (known := find(dataset)) else None) or dataset,
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
