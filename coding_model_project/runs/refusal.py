"""A run goes on, or is done again, as it was started: the refusal of anything else."""

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
"""What an attempt may leave of its samples, in a run's folder."""

_WHERE = ("coding.evaluation.cluster", "coding.evaluation.ray_address")
"""Keys that say on which machines the work is done, which a run may go on with others of."""


def comparable(config: DictConfig) -> str:
    """The resolved configuration as YAML, without what only says how to start."""
    resolved = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    resolved.coding.pop("force", None)
    return OmegaConf.to_yaml(resolved)


def has_made_something(run: RunFolder) -> bool:
    """Whether a run has left a metric, a completion or a checkpoint, which bind it to its settings."""
    if run.metrics.exists() and run.metrics.stat().st_size:
        return True
    return _has_answers(run.path / _COMPLETIONS) or any(run.checkpoints.glob("global_step_*"))


def settings_changed(run: RunFolder, config: DictConfig) -> list[str]:
    """Return the keys whose values differ from a run's recorded configuration, with both values."""
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
    """Make sure that a run goes on as it was started. One that has made nothing may change.

    Raises:
        ConfigError: its configuration, data or model was another one; with the difference.
    """
    if not (has_made_something(run) and run.config.exists()):
        return
    if changed := settings_changed(run, config):
        raise ConfigError(
            f"{run.path} was started with another configuration ({'; '.join(changed)}): set "
            "coding.run_dir to a new folder, or coding.force=true to go on with the new one (of eval "
            "run: --out and --force)"
        )
    if changed := _changed_inputs(run, inputs):
        raise ConfigError(
            f"{run.path} was started with other data or another model ({'; '.join(changed)}): put "
            "them back, set coding.run_dir to a new folder, or coding.force=true to go on with the new"
        )


def refuse_other_inputs(recorded: RunFolder, inputs: Inputs) -> None:
    """Make sure that what a run is repeated with is what it was done with.

    Raises:
        ConfigError: its data or model is not what it was; with the difference.
    """
    if changed := _changed_inputs(recorded, inputs):
        raise ConfigError(
            f"{recorded.path} cannot be repeated: its data or model has changed "
            f"({'; '.join(changed)}): put them back, or start a new run of the recipe"
        )


def forget(run: RunFolder) -> None:
    """Delete the samples of a run that made nothing, so that another's are not mixed in. Logs stay."""
    for form in _SAMPLES:
        for file in run.path.glob(form):
            file.unlink()


def _has_answers(completions: Path) -> bool:
    """Whether the model answered anything: prompts that it could not take are lines too."""
    if not completions.exists():
        return False
    with completions.open("rb") as lines:
        return any(not _was_refused(line) for line in lines)


def _was_refused(line: bytes) -> bool:
    try:
        return bool(orjson.loads(line).get("refused"))
    except orjson.JSONDecodeError:  # half a line, of a kill
        return True


def _changed_inputs(run: RunFolder, inputs: Inputs) -> list[str]:
    before = run.inputs()
    return changes(before, inputs) if before else []


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    """Leaves of nested dictionaries by their full key."""
    if not isinstance(node, dict) or not node:
        return {prefix.rstrip("."): str(node)}
    return {
        key: leaf for child in node for key, leaf in _flat(node[child], f"{prefix}{child}.").items()
    }
