"""The files of a model besides its weights, which exports copy from the model that training starts from.

verl writes its own version of these files into a checkpoint's `huggingface`:

- The bos, eos and pad ids in config.json are the tokenizer's: one eos id where the model has several, and
  eos as the pad id where the model has none.
- The dtype is always bfloat16.
- A missing generation_config.json is derived from these ids.
- Tokenizer files are written anew, also with eos as the pad token.

An export has the starting model's files instead. Its config.json differs only in keys of
`override_config`, and in the dtype if the weights are exported in another one: they are never rounded, so
training in single precision of a model in bfloat16 exports float32, and config.json says float32.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coding_model_project.atomic import write_json, write_text
from coding_model_project.contained import check_plain
from coding_model_project.errors import CheckpointError

EXPORT_MARKER = "export.json"
"""File in which `export` records what it exported."""
_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py")
_CONFIG = "config.json"
_CONFIGS = (_CONFIG, "generation_config.json")
_TEMPLATE = "chat_template.jinja"
"""Loaders prefer this file to a template in tokenizer_config.json."""
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
_DTYPE_KEYS = ("dtype", "torch_dtype")
_NOT_IN_CONFIG = "attn_implementation"
"""A key of `override_config` that selects code and is not a property of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingModel:
    """A model whose files exports copy."""

    config: Path
    """Folder with config.json and maybe generation_config.json."""
    tokenizer: Path
    """Folder with all other files."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that the training sets in config.json."""
    chat_template: str | None = None
    """A template that replaces the model's in training."""

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> StartingModel:
        """Return the model that verl's section `model` names by folders or hub names."""
        overrides = dict(model.get("override_config") or {})
        overrides = dict(overrides.get("model_config", overrides))
        overrides.pop(_NOT_IN_CONFIG, None)
        return cls(
            config=_folder(model.get("hf_config_path") or model["path"]),
            tokenizer=_folder(model.get("tokenizer_path") or model["path"]),
            overrides=overrides,
            chat_template=model.get("custom_chat_template"),
        )

    def write_to(self, export: Path) -> None:
        """Replace an export's files, except its weights, with this model's.

        Raises:
            CheckpointError: the model's config.json is gone.
        """
        files = {file.name: file for file in _files(self.tokenizer) if file.name not in _CONFIGS}
        files |= {file.name: file for file in _files(self.config) if file.name in _CONFIGS}
        if _CONFIG not in files:
            raise CheckpointError(
                f"{export}: its files cannot be completed, because {self.config / _CONFIG} of the "
                "starting model is missing"
            )
        for file in list(_files(export)):
            if file.name not in files:
                file.unlink()
        for name, file in files.items():
            shutil.copyfile(file, export / name)
        if self.chat_template is not None:
            write_text(export / _TEMPLATE, self.chat_template)
        if self.overrides:
            config = json.loads((export / _CONFIG).read_text())
            write_json(export / _CONFIG, _overridden(config, self.overrides))
        correct_dtype(export)


def _folder(name: str) -> Path:
    """Return a model's folder. A hub model's files are downloaded unless they are in the cache."""
    if (folder := Path(name).expanduser()).is_dir():
        return folder
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=list(_FILES)))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that belong to a model and are not its weights."""
    for file in sorted({file for form in _FILES for file in folder.glob(form)}):
        if not file.name.endswith(".index.json") and file.name != EXPORT_MARKER:
            check_plain(folder, file)
            yield file


def _overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the overrides, which verl applies to nested sections key by key."""
    return {
        **config,
        **{
            key: _overridden(config.get(key) or {}, value) if isinstance(value, Mapping) else value
            for key, value in overrides.items()
        },
    }


def correct_dtype(model: Path) -> None:
    """Make config.json name the weights' dtype, which loaders take from there.

    Weights of several dtypes, or none in the folder, leave it as it is.
    """
    dtypes = {entry["dtype"] for entry in weight_entries(model).values()}
    dtype = _DTYPES.get(dtypes.pop()) if len(dtypes) == 1 else None
    if dtype is None:
        return
    config = json.loads((model / _CONFIG).read_text())
    keys = [key for key in _DTYPE_KEYS if key in config] or _DTYPE_KEYS[:1]
    corrected = config | dict.fromkeys(keys, dtype)
    if corrected != config:
        write_json(model / _CONFIG, corrected)


def weight_entries(model: Path) -> dict[str, dict[str, Any]]:
    """Return dtype and shape of the weights in a folder's safetensors, by name.

    It reads only headers: https://github.com/huggingface/safetensors#format
    """
    entries: dict[str, dict[str, Any]] = {}
    for file in sorted(model.glob("*.safetensors")):
        with file.open("rb") as opened:
            entries |= json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    entries.pop("__metadata__", None)
    return entries
