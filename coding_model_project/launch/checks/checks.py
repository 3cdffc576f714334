"""Checks before verl is imported: first values, then paths and data roles, then the files' content."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import coding_of
from coding_model_project.data.governance import refuse_test_only
from coding_model_project.data.loaders.table import network_errors
from coding_model_project.errors import ConfigError
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.grading.shaping import Shaping
from coding_model_project.launch.checks import episode_checks, relations, row_checks, rules
from coding_model_project.launch.recipe import MAKE_PAIRS
from coding_model_project.launch.sizing import cached_config, free_memory_gb, needed_gb
from coding_model_project.runs.checkpoints import FOLDER
from coding_model_project.types import Problem


def check_values(config: DictConfig) -> None:
    """Check the values of any recipe's configuration, before anything is prepared.

    Raises:
        ConfigError: a value is invalid; the message names the key and the fix.
    """
    if refused := rules.broken(config):
        raise ConfigError("\n".join(refused))
    if conflict := relations.broken(config):
        raise ConfigError(conflict)
    coding = coding_of(config)
    make_sandbox(coding.sandbox)
    if "actor_rollout_ref" in config:
        longest = config.data.max_response_length
        Shaping.of(coding.reward, style=coding.prompt, max_tokens=longest)
        episode_checks.check_values(config)


def check(
    config: DictConfig, model_key: str, make_data: str = "", *, prepared: bool = True
) -> None:
    """Check the files that every training names.

    Args:
        model_key: verl's key of the starting model, e.g. "actor_rollout_ref.model.path".
        make_data: advice for a missing data file; {} stands for its path.
        prepared: whether the embedded task set and model exist; before that they may be missing.

    Raises:
        ConfigError: a file is missing; the message names the key and the fix.
    """
    model = OmegaConf.select(config, model_key)
    if prepared or not model or not relations.is_embedded(config, model):
        check_model(model_key, model)
    if OmegaConf.select(config, "distillation.enabled"):
        for name, teacher in config.distillation.teacher_models.items():
            key = f"distillation.teacher_models.{name}.model_path"
            check_model(key, teacher.model_path)
            _check_same_tokens(key, teacher.model_path, model_key, model)
    judges = "actor_rollout_ref" in config  # SFT and DPO judge nothing while they train
    for path in config.coding.problems if judges else ():
        if not Path(path).is_file() and (prepared or not relations.is_embedded(config, path)):
            raise ConfigError(
                f"coding.problems: no file {path}; set coding.problems=[FILE] to your problems"
            )
    for key in ("data.train_files", "data.val_files"):
        for path in files(config, key):
            here = Path(path).exists()
            if not (here or prepared or make_data) and relations.is_embedded(config, path):
                continue
            if key == "data.train_files":
                refuse_test_only(path)
            if not here:
                way = make_data.format(path) or f"set {key} to a parquet file of rows"
                raise ConfigError(f"{key}: no file {path}; {way}")
    _check_resume_path(config)
    check_memory(needed_gb(config, longest=0))


def _check_resume_path(config: DictConfig) -> None:
    """Raise ConfigError unless the checkpoint to resume from, if one is named, is there."""
    key, path = "trainer.resume_from_path", config.trainer.resume_from_path
    mode = config.trainer.resume_mode
    if mode == "disable" or (mode == "auto" and path is None):
        return
    folder = Path(str(path or ""))
    if path is None or FOLDER.fullmatch(folder.name) is None:
        what = "a checkpoint's folder, such as RUN/checkpoints/global_step_100"
        raise ConfigError(f"{key}={path}: expected the path of {what}")
    if not folder.is_dir():
        raise ConfigError(
            f"{key}={path}: no such folder; set it to an existing checkpoint's folder"
        )
    if str(path).endswith("/"):  # verl takes everything behind the name as the step
        raise ConfigError(f"{key}={path}: expected the path without a slash at the end: {folder}")


def check_sft(config: DictConfig) -> None:
    """Check for errors that verl's SFT trainer reports late or never.

    Raises:
        ConfigError: a check failed; the message names the key and the fix.
    """
    check_values(config)
    check_rows(config, "data.train_files", "data.val_files")
    _check_lengths(config)


def check_grpo(config: DictConfig) -> None:
    """Check for errors that verl's PPO trainer reports late or never.

    Raises:
        ConfigError: a check failed; the message names the key and the fix.
    """
    problems = row_checks.readable(config.coding.problems)
    check_values(config)
    episode_checks.check_problems(config, problems)
    episode_checks.check_template(config)
    episode_checks.check_tasks(config, problems)
    check_rows(config, "data.train_files")
    row_checks.check_problems(config, problems, files(config, "data.train_files"))
    _check_lengths(config, problems)


def _check_lengths(config: DictConfig, problems: Sequence[Problem] = ()) -> None:
    """Check that the samples fit into the configured lengths, and micro-batches of them into memory.

    Raises:
        ConfigError: they do not; the message names the key and the fix.
    """
    paths = [path for key in ("data.train_files", "data.val_files") for path in files(config, key)]
    check_memory(needed_gb(config, row_checks.check_lengths(config, paths, problems)))


def check_rows(config: DictConfig, *keys: str) -> None:
    """Raise ConfigError unless each key's files fill a batch: verl drops incomplete batches."""
    batch = config.data.train_batch_size
    for key in keys:
        n_rows = _count_rows(config, key)
        if n_rows is not None and n_rows < batch:
            raise ConfigError(
                f"{key}: {n_rows} rows do not fill one batch of data.train_batch_size={batch}; "
                "verl would drop them all: lower the batch size or add rows"
            )


def _count_rows(config: DictConfig, key: str) -> int | None:
    """Return the number of rows in a key's Parquet files; None if it names none."""
    import pyarrow.parquet as pq

    paths = [path for path in files(config, key) if path.endswith(".parquet")]
    return sum(pq.read_metadata(path).num_rows for path in paths) if paths else None


def check_model(key: str, path: str | None) -> None:
    """Check that a model is a folder with a config.json, or a model of the hub ("owner/name").

    A model that is not in the hub's cache makes one request to the hub.

    Raises:
        ConfigError: it is neither, or the hub refuses this user or cannot be reached; the message names
            the key and the fix.
    """
    if not path:
        raise ConfigError(f"{key}: no model given; set {key}=PATH or a hub name owner/name")
    local = Path(path).expanduser()
    if (local / "config.json").exists():
        return
    if local.exists():
        raise ConfigError(
            f"{key}={path}: the folder has no config.json; is it a Hugging Face model?"
        )
    is_hub_name = len(Path(path).parts) == 2 and not path.startswith(
        (".", "~", "/", "data", "outputs")
    )
    if not is_hub_name:
        raise ConfigError(
            f"{key}={path}: no such folder; set {key} to a model's folder or hub name"
        )
    if cached_config(path) is None and (why := _why_not(path)):
        raise ConfigError(f"{key}={path}: no such folder here, and {why}")


def _check_same_tokens(key: str, teacher: str, model_key: str, model: str) -> None:
    """Raise ConfigError if two local models number their tokens differently."""
    files = [Path(path).expanduser() / "tokenizer.json" for path in (teacher, model)]
    if not all(file.exists() for file in files):
        return
    one, other = (json.loads(file.read_text())["model"].get("vocab") for file in files)
    if one != other:
        raise ConfigError(
            f"{key}={teacher}: its tokens are not those of {model_key}={model}, whose answers it would "
            "score; choose a teacher with the same tokenizer"
        )


def check_memory(least_gb: float) -> None:
    available_gb = free_memory_gb()
    if available_gb < least_gb:
        raise ConfigError(
            f"coding.min_memory_gb: {available_gb:.1f} GB of memory are free, but this run needs "
            f"{least_gb:g}; free some, or lower the micro-batch and set coding.min_memory_gb"
        )


def files(config: DictConfig, key: str) -> list[str]:
    """Return the paths of a key that takes one path or a list of them."""
    value = OmegaConf.select(config, key)
    if value is None:
        return []
    return [str(value)] if isinstance(value, str) else [str(path) for path in value]


# ── models on the hub ─────────────────────────────────────────────────────────────────────────────

HUB_TIMEOUT_S = 10.0


@functools.cache  # a recipe checks twice
def _why_not(name: str) -> str:
    """Return why the hub does not give a model to this user; empty if it may."""
    from huggingface_hub import constants, errors, get_hf_file_metadata, hf_hub_url

    unreachable = "; download the model first, or pass its folder"
    if constants.HF_HUB_OFFLINE:
        return f"the hub cannot be reached (HF_HUB_OFFLINE is set){unreachable}"
    try:
        url = hf_hub_url(name, "config.json", endpoint=constants.ENDPOINT)
        get_hf_file_metadata(url, timeout=HUB_TIMEOUT_S)
    except errors.GatedRepoError:
        page = f"{constants.ENDPOINT}/{name}"
        return f"the hub's model is gated; accept its terms at {page}, then set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        return (
            "no such model on the hub; check the name, pass a model's folder, or set HF_TOKEN if the "
            "model is private"
        )
    except errors.HFValidationError:
        return "not a name on the hub; check the name, or pass a model's folder"
    except errors.HfHubHTTPError:
        return ""  # a model without config.json, or a busy hub, which a download asks again
    except network_errors() as error:
        line = str(error).splitlines()[0] if str(error) else ""
        reason = f"{type(error).__name__} {line}".rstrip()
        return f"the hub cannot be reached ({reason}){unreachable}"
    return ""


# ── preference pairs ──────────────────────────────────────────────────────────────────────────────


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
    n_pairs, ranks = _count_rows(config, "data.val_files"), config.trainer.n_gpus_per_node
    if n_pairs is not None and n_pairs < ranks:
        raise ConfigError(
            f"data.val_files: {n_pairs} pairs for {ranks} ranks: add pairs, at least one per rank"
        )
    _check_lengths(config)


def _check_pairs(key: str, path: str) -> None:
    """Raise ConfigError unless a file has pairs, at least one with different answers."""
    import pyarrow.parquet as pq

    try:
        names = set(pq.read_schema(path).names)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ConfigError(
            f"{key}: {path} is not a parquet file; {MAKE_PAIRS.format(path)}"
        ) from error
    if missing := {"prompt", "chosen", "rejected"} - names:
        raise ConfigError(
            f"{key}: {path} has no column {min(missing)}: not pairs; {MAKE_PAIRS.format(path)}"
        )
    table = pq.read_table(path, columns=["chosen", "rejected"])
    if all(row["chosen"] == row["rejected"] for row in table.to_pylist()):
        what = "contains no pairs" if not table.num_rows else "chosen equals rejected in every pair"
        raise ConfigError(f"{key}: {path}: {what}; {MAKE_PAIRS.format(path)}")
