"""Masking of secrets in uploads: found by their names, and replaced by text of the same length.

The same length keeps a file's size and offsets identical in the copy. A configuration that was recorded
elsewhere gets this start's secrets back.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from omegaconf import OmegaConf

_VARIABLE = re.compile(r"[A-Z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?|AUTH)")
"""Names of environment variables, also if a configuration sets them."""
_SETTING = re.compile(
    r"(.*_)?((api|access|secret|private|auth|session|hf)_?(key|token)|secret|password|passwd|credentials?)",
    re.IGNORECASE,
)
"""Names of other keys; not verl's `prompt_key` or a tokenizer's `eos_token`."""
_USER_INFO = re.compile(r"\w+://[^/\s@'\"]+@")
_SHORTEST = 6
"""Minimum length of a secret in characters; masking shorter values would hit other text."""
_LONG = 16
"""Minimum length, in characters, of a line of a secret that is masked on its own."""
_NO_SECRETS = ("CODING_RUN_TOKEN", "PWD", "OLDPWD")
MASK = "X"
"""A character that YAML and JSON always parse as text."""


def secrets_of(config: Any, environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return the secrets of a configuration and an environment, longest first.

    Args:
        config: a plain container.
    """
    named = [(name, value) for name, value in environment.items() if name not in _NO_SECRETS]
    named += [(name, value) for name, value in _leaves("", config) if isinstance(value, str)]
    found = {value for name, value in named if _is_secret(name, value)}
    found |= {password for _, value in named for password in _passwords(value)}
    found |= {form for text in found for form in _escaped(text)}
    return tuple(sorted(map(os.fsencode, found), key=len, reverse=True))


def masked(content: bytes, secrets: tuple[bytes, ...]) -> bytes:
    """Mask the secrets in some content; keep its length."""
    for secret in secrets:
        content = content.replace(secret, MASK.encode() * len(secret))
    return content


def _is_secret(name: str, value: str) -> bool:
    return (
        bool(_VARIABLE.fullmatch(name) or _SETTING.fullmatch(name))
        and len(value) >= _SHORTEST
        and not value.replace(".", "").isdigit()
        and not _is_file(value)  # the path of a file with the secret
    )


def _is_file(value: str) -> bool:
    """Return whether a value names a file here; an AWS secret key may also start with a slash."""
    if not value.startswith(("/", "~")):
        return False
    try:
        return Path(value).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a path, or no such user
        return False


def _escaped(secret: str) -> Iterator[str]:
    """Yield the forms of a secret in JSON and YAML, which break it at line ends."""
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield secret.replace("'", "''")
    yield from (line for line in secret.splitlines() if len(line) >= _LONG)


def _passwords(value: str) -> Iterator[str]:
    """Yield passwords in URLs such as https://user:password@host."""
    for match in _USER_INFO.finditer(value):
        password = urlsplit(match[0] + "host").password
        if password and len(password) >= _SHORTEST:
            yield from {password, unquote(password)}


def _leaves(name: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _leaves(str(key), child)
    elif isinstance(node, list):
        for child in node:
            yield from _leaves(name, child)
    else:
        yield name, node


def made_ours(recorded: str, present: str, origin: Mapping[str, Any]) -> str:
    """Return a recorded configuration with this start's secrets and folders.

    Args:
        recorded: YAML as `resuming.comparable` returns it; secrets may be masked.
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
            if old is not None and f"{before}/".startswith(f"{old}/")
        ]
        return now if MASK * _SHORTEST in before or now in moved else before
    return before
