"""What a run starts from, by content: its data files, problems and starting model.

A configuration names files; the same name may hold something else tomorrow. Each file is known by
its size and the SHA-256 of its content; of very large ones, of both ends.
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
"""Fingerprint by the configuration's key and the file's name: paths may move, contents may not."""


def inputs_of(config: DictConfig, model_key: str) -> Inputs:
    """The inputs that a resolved configuration names.

    Args:
        model_key: verl's key of the starting model; a name on the hub is known by its revision in
            the local cache, and by nothing before it is there.

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
    """The configuration with paths of copies in place of URLs; itself if it names none.

    The run's own record keeps the URLs: they are the same on every machine.

    Raises:
        ConfigError: something cannot be read; names the key and the URL.
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
    """What differs, a line per file."""
    return [
        f"{name}: {before.get(name, _ABSENT)} → {after.get(name, _ABSENT)}"
        for name in [*before, *(name for name in after if name not in before)]
        if before.get(name, _ABSENT) != after.get(name, _ABSENT)
    ]


def fingerprint(path: Path) -> str:
    """E.g. "1234 bytes, sha256 0f3a…": the first 16 digits; "absent" if there is no such file."""
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

    cached = try_to_load_from_cache(name, "config.json")
    if isinstance(cached, str):  # .../snapshots/REVISION/config.json
        yield "revision", Path(cached).parent.name
