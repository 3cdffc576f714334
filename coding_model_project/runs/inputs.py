"""Fingerprints of a run's inputs: its data files, problems and starting model.

A configuration names files, whose content may change. So each file is identified by its size and the
SHA-256 of its content, or of both ends if it is very large.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import CodingModelError
from coding_model_project.storage.fetching import folder_on_disk, on_disk
from coding_model_project.storage.object_store import is_url

_DATA_KEYS = ("data.train_files", "data.val_files", "coding.problems")
_MODEL_FILES = ("*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*.jinja")
_WHOLE_BYTES = 512 << 20
_END_BYTES = 4 << 20
_ABSENT = "absent"

Inputs = Mapping[str, str]
"""Fingerprints by key and file name, without folders: paths may move, contents may not change."""


def inputs_of(config: DictConfig, model_key: str) -> Inputs:
    """Return the inputs that a resolved configuration names.

    Args:
        model_key: verl's key of the starting model. A hub name is identified by its revision in the
            local cache, and omitted before it is downloaded.

    Raises:
        OSError: a file cannot be read.
    """
    found = {}
    for key in _DATA_KEYS:
        value = OmegaConf.select(config, key)
        paths = [value] if isinstance(value, str) else [str(path) for path in value or ()]
        for number, path in enumerate(paths):
            place = f"{key}[{number}]" if len(paths) > 1 else key
            found[f"{place} {Path(path).name}"] = fingerprint(Path(path))
    model = OmegaConf.select(config, model_key)
    if model:
        found |= {f"{model_key} {name}": text for name, text in model_files(str(model))}
    return found


def with_local_inputs(config: DictConfig, model_key: str) -> DictConfig:
    """Return a copy of the configuration with local paths in place of URLs, which are downloaded.

    The run's own record keeps the URLs, which are the same on every machine.

    Raises:
        ConfigError: an input cannot be read; the message names the key and the URL.
        DownloadError: a store does not answer.
    """
    local = DictConfig(OmegaConf.create(config))
    for key in (*_DATA_KEYS, model_key):
        value = OmegaConf.select(config, key)
        fetched = folder_on_disk if key == model_key else lambda path: str(on_disk(path))
        paths = [value] if isinstance(value, str) else [str(path) for path in value or ()]
        if not any(map(is_url, paths)):
            continue
        try:
            copies = [fetched(path) for path in paths]
        except CodingModelError as error:
            raise type(error)(f"{key}={error}") from error
        OmegaConf.update(local, key, copies[0] if isinstance(value, str) else copies)
    return local


def changes(before: Inputs, after: Inputs) -> list[str]:
    """Return the differences, one line per file."""
    return [
        f"{name}: {before.get(name, _ABSENT)} → {after.get(name, _ABSENT)}"
        for name in [*before, *(name for name in after if name not in before)]
        if before.get(name, _ABSENT) != after.get(name, _ABSENT)
    ]


def fingerprint(path: Path) -> str:
    """Return a fingerprint such as "1234 bytes, sha256 0f3a…" (16 digits); "absent" if not a file."""
    if not path.is_file():
        return _ABSENT
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            return f"{size} bytes, sha256 {hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
        digest = hashlib.sha256(file.read(_END_BYTES))
        file.seek(-_END_BYTES, 2)
        digest.update(file.read())
    return f"{size} bytes, sha256 of both ends {digest.hexdigest()[:16]}"


def model_files(name: str) -> Iterator[tuple[str, str]]:
    folder = Path(folder_on_disk(name)).expanduser()
    if folder.is_dir():
        for path in sorted({path for form in _MODEL_FILES for path in folder.glob(form)}):
            yield path.name, fingerprint(path)
        return
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError:  # no name of the hub: whatever loads the model says so
        return
    if isinstance(cached, str):  # .../snapshots/REVISION/config.json
        yield "revision", Path(cached).parent.name
