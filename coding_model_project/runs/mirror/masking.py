"""Secrets in what leaves this machine: found by their names, covered by a text of the same length.

The length stays, so that a file's size and places in it are the same here and there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

_VARIABLE = re.compile(r"[A-Z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PWD|CREDENTIALS?|AUTH)")
"""Names of environment variables, also where a configuration sets them."""
_SETTING = re.compile(
    r"(.*_)?((api|access|secret|private|auth|session|hf)_?(key|token)|secret|password|passwd|credentials?)",
    re.IGNORECASE,
)
"""Names of other keys: verl's `prompt_key` and a tokenizer's `eos_token` are none."""
_USER_INFO = re.compile(r"\w+://[^/\s@'\"]+@")
_SHORTEST = 6
"""Shorter values would also cover what is no secret."""
_OURS = "CODING_RUN_TOKEN"
MASK = "X"
"""Neither YAML nor JSON reads it as anything but text."""


def secrets_of(config: Any, environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """All values of a configuration and an environment that must not leave this machine, longest first.

    Args:
        config: a plain container.
    """
    named = [(name, value) for name, value in environment.items() if name != _OURS]
    named += [(name, value) for name, value in _leaves("", config) if isinstance(value, str)]
    found = {value for name, value in named if _is_secret(name, value)}
    found |= {password for _, value in named for password in _passwords(value)}
    return tuple(sorted((text.encode() for text in found), key=len, reverse=True))


def masked(content: bytes, secrets: tuple[bytes, ...]) -> bytes:
    """A content without secrets, of the same length."""
    for secret in secrets:
        content = content.replace(secret, MASK.encode() * len(secret))
    return content


def is_masked(value: object) -> bool:
    """Return true for a value that was covered, whole or in part."""
    return MASK * _SHORTEST in str(value)


def _is_secret(name: str, value: str) -> bool:
    return (
        bool(_VARIABLE.fullmatch(name) or _SETTING.fullmatch(name))
        and len(value) >= _SHORTEST
        and not value.replace(".", "").isdigit()
        and not value.startswith(("/", "~"))  # a file that holds it
    )


def _passwords(value: str) -> Iterator[str]:
    """Passwords in addresses such as https://user:password@host."""
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
