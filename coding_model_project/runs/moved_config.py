"""A configuration recorded elsewhere, with this start's secrets and folders in place of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from coding_model_project.runs.mirror.masking import is_masked


def made_ours(recorded: str, present: str, origin: Mapping[str, Any]) -> str:
    """Return a recorded configuration with this start's secrets and folders.

    Args:
        recorded: YAML as `refusal.comparable` returns it; secrets may be masked.
        present: this start's.
        origin: `cwd`, the working folder of the start that was recorded.
    """
    before = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(recorded)))
    now = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(present)))
    places = [
        (before["coding"].get(key), now["coding"].get(key)) for key in ("run_dir", "data_dir")
    ]
    places.append((origin.get("cwd"), str(Path.cwd())))
    places = [(old and old.rstrip("/"), new and new.rstrip("/")) for old, new in places]
    return OmegaConf.to_yaml(OmegaConf.create(_filled(before, now, places)))


def _filled(before: Any, now: Any, places: Sequence[tuple[Any, Any]]) -> Any:
    if isinstance(before, dict) and isinstance(now, dict):
        return {key: _filled(value, now.get(key), places) for key, value in before.items()}
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [_filled(*pair, places) for pair in zip(before, now, strict=True)]
    if isinstance(before, str):
        moved = [
            f"{new}{before[len(old) :]}"
            for old, new in places
            if old is not None and _is_in(before, old)
        ]
        return now if is_masked(before) or now in moved else before
    return before


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
