"""Merging of shards, which are evaluated by several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from coding_model_project.atomic import replacing, write_json
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import COMPLETIONS, RESULTS, RUN_INFO
from coding_model_project.evaluation.settings import Settings


def gather(settings: Settings, folders: Sequence[Path], *, say: Callable[[str], None]) -> None:
    """Merge shards' folders into the evaluation's folder, where evaluating then does the rest.

    The evaluation completes what shards left unfinished and repeats nothing. Does nothing if the
    evaluation has begun.

    Args:
        settings: the whole evaluation's settings: the shards', without `shard` and with another folder.

    Raises:
        ConfigError: a folder is not a shard's, or the shards are of different evaluations.
    """
    target = settings.run_dir
    if settings.shard.of > 1:
        raise ConfigError("--shard and --merge exclude each other; pass --merge without --shard")
    if (target / COMPLETIONS).exists():
        say(f"{target} has begun; resuming it")
        return
    infos = [_info(folder) for folder in folders]
    for folder, info in zip(folders, infos, strict=True):
        for key in ("model", "seed", "protocol"):
            if info[key] != infos[0][key]:
                raise ConfigError(
                    f"{folder}: {key} differs from that of {folders[0]}; merge shards of one evaluation"
                )
    _check_complete(infos)
    target.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, COMPLETIONS):  # COMPLETIONS last: it marks the evaluation as begun
        with replacing(target / name) as partial, partial.open("wb") as merged:
            for folder in folders:
                with (folder / name).open("rb") as part:
                    merged.writelines(line for line in part if line.endswith(b"\n"))
    write_json(target / RUN_INFO, infos[0] | {"shard": None})


def _info(folder: Path) -> dict[str, object]:
    try:
        return orjson.loads((folder / RUN_INFO).read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"{folder}: not a shard's folder (it has no {RUN_INFO})") from error


def _check_complete(infos: Sequence[dict[str, object]]) -> None:
    shards = sorted(str(info["shard"]) for info in infos)
    of = shards[0].partition("/")[2] or "1"
    expected = sorted(f"{number}/{of}" for number in range(int(of)))
    if shards != expected:
        raise ConfigError(
            f"--merge: the folders hold {', '.join(shards)}; expected {', '.join(expected)}"
        )
