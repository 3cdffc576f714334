"""The run whose checkpoints a URL has, recorded beside them, so that no other run resumes from them.

`URL/owner.json` has the run's configuration and inputs, with secrets masked, and a new id for each start.
`CheckpointStore.upload` compares it with the copy here, so a start that took the URL later ends the
uploads of an earlier one.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from coding_model_project.errors import ConfigError
from coding_model_project.runs.checkpoint_store import OWNER, CheckpointStore
from coding_model_project.runs.inputs import Inputs, changes
from coding_model_project.runs.mirror.masking import masked, secrets_of
from coding_model_project.runs.moved_config import made_ours
from coding_model_project.runs.refusal import comparable, listed, settings_changed

_FREE = re.compile(r"trainer\.resume_(mode|from_path)|.*attn_implementation")
"""Keys that differ between starts and machines of the same run."""
_REVISION = " revision"
"""End of the input's name for a model of the hub, which is absent until it has been downloaded."""


def claim(
    store: CheckpointStore, config: DictConfig, inputs: Inputs, checkpoints: Path, *, force: bool
) -> None:
    """Refuse a URL with another run's checkpoints, else record this run there.

    Runs are the same if they may resume in the same folder (`refusal`); the folder itself may differ.
    Checkpoints without a record, of an older version, are accepted.

    Args:
        checkpoints: the folder that they are uploaded from.
        force: accept another run's checkpoints.

    Raises:
        ConfigError: another run's checkpoints are there (with the differences), the record is damaged,
            or it cannot be written.
        CheckpointError: the store does not answer.
    """
    record = _record(config, inputs)
    content = store.read_owner() if not force and store.readable_steps() else None
    if content is not None and (changed := _changes(content, config, record["inputs"], store.url)):
        raise ConfigError(
            f"coding.checkpoints.url={store.url}: has checkpoints of another run ({listed(changed)}): "
            "set another URL, or coding.force=true to resume from them"
        )
    store.take(json.dumps(record, indent=2).encode(), checkpoints)


def _record(config: DictConfig, inputs: Inputs) -> dict[str, Any]:
    plain = OmegaConf.to_container(OmegaConf.create(comparable(config)))
    secrets = secrets_of(plain, os.environ)
    return {
        "id": uuid.uuid4().hex,
        "config": OmegaConf.to_yaml(OmegaConf.create(_masked(plain, secrets))),
        "inputs": {_masked(name, secrets): text for name, text in inputs.items()},
        "cwd": _masked(str(Path.cwd()), secrets),
    }


def _masked(node: Any, secrets: tuple[bytes, ...]) -> Any:
    """Mask secrets in values before they are formatted, which may break a secret up."""
    if isinstance(node, dict):
        return {key: _masked(value, secrets) for key, value in node.items()}
    if isinstance(node, list):
        return [_masked(value, secrets) for value in node]
    return os.fsdecode(masked(os.fsencode(node), secrets)) if isinstance(node, str) else node


def _changes(content: bytes, config: DictConfig, now: Inputs, url: str) -> list[str]:
    """Return the settings, else the inputs, in which this run differs from the recorded one.

    Args:
        now: this run's inputs, with secrets masked.

    Raises:
        ConfigError: the record is damaged.
    """
    try:
        owner = json.loads(content)
        recorded = made_ours(owner["config"], comparable(config), owner)
        settings = [
            line
            for line in settings_changed(recorded, config)
            if not _FREE.fullmatch(line.partition(": ")[0])
        ]
        before = dict(owner["inputs"])
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        YAMLError,
        OmegaConfBaseException,
    ) as error:
        raise ConfigError(
            f"coding.checkpoints.url={url}: {OWNER} there is not the record of a run "
            f"({type(error).__name__}): delete it, or set coding.force=true"
        ) from error
    unknown = {name for name in before.keys() ^ now.keys() if name.endswith(_REVISION)}
    shared = ({n: one[n] for n in one if n not in unknown} for one in (before, now))
    return settings or changes(*shared)
