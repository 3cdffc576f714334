"""Environment keys of older versions of task.toml."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationInfo

DEPRECATED_KEYS = frozenset({"memory", "storage", "allow_internet"})
_MB = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


def migrated(given: Any, info: ValidationInfo) -> Any:
    """Return an environment's table without deprecated keys; append those to the list `info.context`."""
    if not isinstance(given, dict):
        return given
    table = {key: value for key, value in given.items() if key not in DEPRECATED_KEYS}
    for key in sorted(DEPRECATED_KEYS & given.keys()):
        if info.context is not None:
            info.context.append(key)
        if key != "allow_internet" and isinstance(given[key], str):
            size = _megabytes(given[key])
            if table.setdefault(f"{key}_mb", size) != size:
                raise ValueError(
                    f"{key} = {given[key]!r} contradicts {key}_mb = {table[f'{key}_mb']}"
                )
    online = TypeAdapter(bool | None).validate_python(given.get("allow_internet"))
    if online is not None and given.get("allowed_hosts") is None:
        table.setdefault("network_mode", "public" if online else "no-network")
    return table


def _megabytes(size: str) -> int:
    number, unit = size.strip()[:-1], size.strip()[-1:].upper()
    try:
        return int(float(number) * _MB[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"{size!r} is not a size such as '1G' or '512M'") from None
