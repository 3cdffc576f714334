"""The run whose checkpoints a URL has, recorded beside them, so that no other run resumes from them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError
from coding_model_project.runs.checkpoint_store import CheckpointStore
from coding_model_project.runs.inputs import Inputs, changes
from coding_model_project.runs.mirror.masking import masked, secrets_of
from coding_model_project.runs.moved_config import made_ours
from coding_model_project.runs.refusal import comparable, listed, settings_changed


def claim(store: CheckpointStore, config: DictConfig, inputs: Inputs, *, force: bool) -> None:
    """Refuse a URL with another run's checkpoints, else record this run there.

    Runs are the same if they may resume in the same folder (`refusal`); the folder itself may differ.
    Checkpoints without a record, of an older version, are accepted.

    Args:
        force: accept them; this run becomes their owner.

    Raises:
        ConfigError: another run's checkpoints are there; the message contains the differences.
        CheckpointError: the store does not answer.
    """
    if not force and store.readable_steps() and (content := store.read_owner()) is not None:
        owner = json.loads(content)
        recorded = made_ours(owner["config"], comparable(config), owner)
        both = owner["inputs"].keys() & inputs.keys()  # a model from the hub may not be here yet
        changed = settings_changed(recorded, config) or changes(
            *({name: one[name] for name in sorted(both)} for one in (owner["inputs"], inputs))
        )
        if changed:
            raise ConfigError(
                f"coding.checkpoints.url={store.url}: has checkpoints of another run "
                f"({listed(changed)}): set another URL, or coding.force=true to resume from them"
            )
    plain = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    text = masked(comparable(config).encode(), secrets_of(plain, os.environ)).decode()
    owner = {"config": text, "inputs": dict(inputs), "cwd": str(Path.cwd())}
    store.write_owner(json.dumps(owner, indent=2).encode())
