"""Configuration and inputs of a run, and refusals to continue it with any others.

Inputs are data files, problems and the starting model. A configuration names files, whose content may
change. So each is identified by its size and the SHA-256 of its content, or of both ends if it is very
large.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.redaction import redacted
from coding_model_project.storage.fetching import folder_on_disk, on_disk
from coding_model_project.storage.object_store import is_url

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

_WHERE = re.compile(
    r"coding\.evaluation\.(cluster|ray_address|api_key_env|concurrency|retry_s|timeout_s)"
    r"|ray_kwargs\.ray_init\.address"
    r"|coding\.(checkpoints|mirror)(\..*)?"
    r"|coding\.min_memory_gb|.*\.update_weights_bucket_megabytes"
)
"""Keys of machines, memory, waiting and the places of copies, which may change when a run resumes."""

_JOBS_CODE = re.compile(r"[^\s',\[]*/working_dir_files/_ray_pkg_[0-9a-f]+/")
"""The folder of a Ray job's code, to which its relative paths refer; changed code gets another folder."""

_ELSEWHERE = "set coding.run_dir to a new folder (for `eval run`: --out)"
_MOST_CHANGES = 6
_MOST_CHARACTERS = 60
"""Maximum length of a value in a message."""


def comparable(config: DictConfig) -> str:
    """Return the resolved configuration as YAML, without keys that only affect the start.

    Its URLs lack their secrets, so runs that differ only in a password are the same.
    """
    plain: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    resolved = OmegaConf.create(redacted(plain))
    resolved.coding.pop("force", None)
    return OmegaConf.to_yaml(resolved)


def has_made_something(run: RunFolder) -> bool:
    """Return whether a run has a metric, a completion or a checkpoint, which bind it to its settings."""
    if run.metrics.exists() and run.metrics.stat().st_size:
        return True
    return _has_answers(run.path / _COMPLETIONS) or any(run.checkpoints.glob("global_step_*"))


def settings_changed(recorded: str, config: DictConfig) -> list[str]:
    """Return the keys that differ from a recorded configuration (`comparable`), with both values."""
    before, after = (
        {
            key: _JOBS_CODE.sub("", value)
            for key, value in _flat(OmegaConf.to_container(read)).items()
        }
        for read in map(OmegaConf.create, (redacted(recorded), comparable(config)))
    )
    return [
        line
        for line in differences(before, after)
        if not _WHERE.fullmatch(line.partition(": ")[0])
        and not line.endswith(": absent → None")  # a key that is newer than the run
    ]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the leaves of nested dictionaries that differ, each as one short line with both values."""
    return changes(_flat(dict(before)), _flat(dict(after)), show=_short)


def listed(changes: Sequence[str]) -> str:
    """Return the first changes on one line, and the number of others."""
    more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
    return "; ".join([*changes[:_MOST_CHANGES], *more])


def refuse_changes(
    run: RunFolder,
    config: DictConfig,
    inputs: Inputs,
    *,
    force: bool = False,
    bound: Sequence[str] = (),
) -> None:
    """Refuse to resume a run with changed settings. A run without results may change, but for `bound`.

    Args:
        force: accept the changes, unless some are bound.
        bound: changes that `force` does not permit, since they would mix results that do not belong
            together.

    Raises:
        ConfigError: configuration, data or model differ; the message contains the differences.
    """
    if has_made_something(run) and run.config.exists() and (bound or not force):
        changed = settings_changed(run.config.read_text(), config)
        what, new = "another configuration", "one"
        if not changed:
            changed, what, new = _changed_inputs(run, inputs), "other data or another model", "ones"
        if changed:
            started = f"{run.path} was started with {what} ({listed(changed)})"
            raise ConfigError(
                f"{started}: restore it, or {_ELSEWHERE}"
                if bound
                else f"{started}: set coding.run_dir to a new folder, or coding.force=true to continue "
                f"with the new {new} (for `eval run`: --out and --force)"
            )
    if bound:
        raise ConfigError(f"{run.path} was started otherwise ({listed(bound)}): {_ELSEWHERE}")


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
        return not all(map(_was_refused, lines))


def _was_refused(line: bytes) -> bool:
    try:
        return bool(orjson.loads(line).get("refused"))
    except orjson.JSONDecodeError:  # truncated by a kill
        return True


def _changed_inputs(run: RunFolder, inputs: Inputs) -> list[str]:
    before = run.inputs()
    return changes(before, inputs) if before else []


def _short(value: str) -> str:
    """Return a value's start and end; a path's end matters most."""
    half = _MOST_CHARACTERS // 2
    return value if len(value) <= _MOST_CHARACTERS else f"{value[: half - 1]}…{value[-half:]}"


def _flat(node: Any, prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested dictionaries by their full key."""
    if not isinstance(node, dict) or not node:
        return {prefix.rstrip("."): str(node)}
    return {
        key: leaf for child in node for key, leaf in _flat(node[child], f"{prefix}{child}.").items()
    }


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


def changes(
    before: Mapping[str, str], after: Mapping[str, str], *, show: Callable[[str], str] = str
) -> list[str]:
    """Return the entries that differ, one line each with both values."""
    return [
        f"{name}: {show(before.get(name, _ABSENT))} → {show(after.get(name, _ABSENT))}"
        for name in {**before, **after}
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
