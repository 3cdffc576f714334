"""Checks of a DPO run before verl is imported."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from omegaconf import DictConfig

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import (
    check_lengths,
    check_rows,
    check_values,
    files,
)
from coding_model_project.launch.recipe import MAKE_PAIRS
from coding_model_project.runs.inputs import fingerprint

COLUMNS = {"prompt", "chosen", "rejected"}
_SHAPE = (
    "architectures", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "vocab_size",
)  # fmt: skip
_TOKENIZER = "tokenizer.json"


def check_dpo(config: DictConfig) -> None:
    """Check for errors that verl's SFT trainer reports late or never.

    Raises:
        ConfigError: a check failed; the message names the key and the fix.
    """
    check_values(config)
    for key in ("data.train_files", "data.val_files"):
        for path in files(config, key):
            _check_pairs(key, path)
    check_rows(config, "data.train_files")
    _check_validation(config)
    check_lengths(config)
    if source := config.trainer.resume_from_path:
        _check_checkpoint(Path(source) / "huggingface", Path(config.model.path))


def _check_validation(config: DictConfig) -> None:
    """Raise ConfigError if there are fewer validation pairs than ranks."""
    paths = files(config, "data.val_files")
    n_pairs = sum(pq.read_metadata(path).num_rows for path in paths)
    ranks = config.trainer.n_gpus_per_node
    if paths and n_pairs < ranks:
        raise ConfigError(
            f"data.val_files: {n_pairs} pairs for {ranks} ranks: add pairs, at least one per rank"
        )


def _check_pairs(key: str, path: str) -> None:
    """Raise ConfigError unless a file has pairs, at least one with different answers."""
    try:
        names = set(pq.read_schema(path).names)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ConfigError(
            f"{key}: {path} is not a parquet file; {MAKE_PAIRS.format(path)}"
        ) from error
    if missing := COLUMNS - names:
        raise ConfigError(
            f"{key}: {path} has no column {min(missing)}: not pairs; {MAKE_PAIRS.format(path)}"
        )
    table = pq.read_table(path, columns=["chosen", "rejected"])
    if all(row["chosen"] == row["rejected"] for row in table.to_pylist()):
        what = "contains no pairs" if not table.num_rows else "chosen equals rejected in every pair"
        raise ConfigError(f"{key}: {path}: {what}; {MAKE_PAIRS.format(path)}")


def _check_checkpoint(saved: Path, model: Path) -> None:
    """Raise ConfigError if a checkpoint's architecture or tokenizer differs from the starting model's."""
    if not (saved / "config.json").is_file() or not (model / "config.json").is_file():
        return  # verl reports what is missing; a hub model may not be downloaded yet
    one, other = (json.loads((folder / "config.json").read_text()) for folder in (saved, model))
    for key in _SHAPE:
        if one.get(key) != other.get(key):
            raise ConfigError(
                f"trainer.resume_from_path: {saved.parent} is of another architecture than "
                f"model.path={model} ({key}: {one.get(key)} → {other.get(key)})"
            )
    if fingerprint(saved / _TOKENIZER) != fingerprint(model / _TOKENIZER):
        raise ConfigError(
            f"trainer.resume_from_path: {saved.parent} has another tokenizer than model.path={model}"
        )
