"""Checks that a run resumes, or is repeated, with the configuration and inputs it started with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.runs.inputs import Inputs, changes

if TYPE_CHECKING:
    from coding_model_project.runs.folder import RunFolder

_COMPLETIONS = "completions.jsonl"
_SAMPLES = (
    _COMPLETIONS,
    "results.jsonl",
    "run_info.json",
    "rollouts*.jsonl*",
    "ungradable*.jsonl",
    "traces/*.json*",
)
"""Files in a run's folder that contain an attempt's samples."""

_WHERE = ("coding.evaluation.cluster", "coding.evaluation.ray_address")
"""Keys that choose the machines, which may change when a run resumes."""


def comparable(config: DictConfig) -> str:
    """Return the resolved configuration as YAML, without keys that only affect the start."""
    resolved = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    resolved.coding.pop("force", None)
    return OmegaConf.to_yaml(resolved)


def has_made_something(run: RunFolder) -> bool:
    """Return whether a run has a metric, a completion or a checkpoint, which bind it to its settings."""
    if run.metrics.exists() and run.metrics.stat().st_size:
        return True
    return _has_answers(run.path / _COMPLETIONS) or any(run.checkpoints.glob("global_step_*"))


def settings_changed(run: RunFolder, config: DictConfig) -> list[str]:
    """Return the keys that differ from a run's recorded configuration, with both values."""
    if not run.config.exists():
        return []
    before, after = (
        _flat(OmegaConf.to_container(OmegaConf.create(yaml)))
        for yaml in (run.config.read_text(), comparable(config))
    )
    return [
        f"{key}: {before.get(key, 'absent')} → {after.get(key, 'absent')}"
        for key in [*before, *(key for key in after if key not in before)]
        if key not in _WHERE and before.get(key, "absent") != after.get(key, "absent")
    ]


def refuse_changes(run: RunFolder, config: DictConfig, inputs: Inputs) -> None:
    """Refuse to resume a run with changed settings. A run without results may change.

    Raises:
        ConfigError: configuration, data or model differ; the message contains the differences.
    """
    if not (has_made_something(run) and run.config.exists()):
        return
    if changed := settings_changed(run, config):
        raise ConfigError(
            f"{run.path} was started with another configuration ({'; '.join(changed)}): set "
            "coding.run_dir to a new folder, or coding.force=true to continue with the new one (for "
            "`eval run`: --out and --force)"
        )
    if changed := _changed_inputs(run, inputs):
        raise ConfigError(
            f"{run.path} was started with other data or another model ({'; '.join(changed)}): restore "
            "them, set coding.run_dir to a new folder, or coding.force=true to continue with the new ones"
        )


def refuse_other_inputs(recorded: RunFolder, inputs: Inputs) -> None:
    """Refuse to repeat a run with changed inputs.

    Raises:
        ConfigError: data or model have changed; the message contains the differences.
    """
    if changed := _changed_inputs(recorded, inputs):
        raise ConfigError(
            f"{recorded.path} cannot be repeated: its data or model has changed "
            f"({'; '.join(changed)}): restore them, or start a new run of the recipe"
        )


def forget(run: RunFolder) -> None:
    """Delete the samples of a run without results, so that they do not mix with new ones. Logs stay."""
    for form in _SAMPLES:
        for file in run.path.glob(form):
            file.unlink()


def _has_answers(completions: Path) -> bool:
    """Return whether the file has a model's answer; rejected prompts are lines too."""
    if not completions.exists():
        return False
    with completions.open("rb") as lines:
        return any(not _was_refused(line) for line in lines)


def _was_refused(line: bytes) -> bool:
    try:
        return bool(orjson.loads(line).get("refused"))
    except orjson.JSONDecodeError:  # truncated by a kill
        return True


def _changed_inputs(run: RunFolder, inputs: Inputs) -> list[str]:
    before = run.inputs()
    return changes(before, inputs) if before else []


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested dictionaries by their full key."""
    if not isinstance(node, dict) or not node:
        return {prefix.rstrip("."): str(node)}
    return {
        key: leaf for child in node for key, leaf in _flat(node[child], f"{prefix}{child}.").items()
    }
