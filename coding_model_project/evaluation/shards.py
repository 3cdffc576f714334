"""One evaluation by several processes: each does a shard, then their samples are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.results import COMPLETIONS, RESULTS, RUN_INFO
from coding_model_project.evaluation.settings import Settings
from coding_model_project.runs.folder import write_json


def gather(settings: Settings, folders: Sequence[Path], *, say: Callable[[str], None]) -> None:
    """Make the evaluation's folder of those of its shards; evaluating there then does the rest.

    What a shard has not finished is done then, and nothing twice. Does nothing if the evaluation has
    begun.

    Args:
        settings: of the whole: as the shards', without `shard` and with a folder of its own.

    Raises:
        ConfigError: a folder is none of a shard, or they are not shards of one evaluation.
    """
    target = settings.run_dir
    if settings.shard.of > 1:
        raise ConfigError("--shard goes with a part, --merge with the whole")
    if (target / COMPLETIONS).exists():
        say(f"{target} has begun: going on there")
        return
    infos = [_info(folder) for folder in folders]
    for folder, info in zip(folders, infos, strict=True):
        for key in ("model", "seed", "protocol"):
            if info[key] != infos[0][key]:
                raise ConfigError(f"{folder}: another {key} than {folders[0]}: not one evaluation")
    _check_complete(infos)
    target.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, COMPLETIONS):  # the one that says it has begun comes last
        partial = target / f"{name}.partial"
        with partial.open("wb") as whole:
            for folder in folders:
                with (folder / name).open("rb") as part:
                    whole.writelines(line for line in part if line.endswith(b"\n"))
        partial.replace(target / name)
    write_json(target / RUN_INFO, infos[0] | {"shard": None})


def _info(folder: Path) -> dict[str, object]:
    try:
        return orjson.loads((folder / RUN_INFO).read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"{folder}: not the folder of a shard (it has no {RUN_INFO})") from error


def _check_complete(infos: Sequence[dict[str, object]]) -> None:
    shards = sorted(str(info["shard"]) for info in infos)
    of = shards[0].partition("/")[2] or "1"
    wanted = sorted(f"{number}/{of}" for number in range(int(of)))
    if shards != wanted:
        raise ConfigError(f"--merge: the folders hold {', '.join(shards)}, not {', '.join(wanted)}")
