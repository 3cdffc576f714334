"""Files of lines that people name in options, hashes of files, and pages from templates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from coding_model_project.errors import ConfigError
from coding_model_project.storage.fetching import on_disk

_Row = TypeVar("_Row")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lines(
    path: str | Path, parse: Callable[[str], _Row], *, option: str, expected: str, command: str = ""
) -> list[_Row]:
    """Read a file or URL; empty lines do not count.

    Args:
        parse: a function that raises ValueError, KeyError or TypeError for a line of another form.
        option: the option that names the file, for messages.
        expected: the form of a line, for messages.
        command: the command that writes such files, for messages.

    Raises:
        ConfigError: the file is missing, or a line has another form; names the line.
    """
    local = on_disk(path)
    if not local.is_file():
        hint = f"; `{command}` writes one" if command else ""
        raise ConfigError(f"{option}: {path}: no such file{hint}")
    rows = []
    for number, line in enumerate(local.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(parse(line.decode()))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{option}: {path}:{number}: expected {expected}") from error
    return rows


# ── pages ──────────────────────────────────────────────────────────────────────────────────────────


def rendered(template: Path, **values: Any) -> str:
    """Return the text of a template of Jinja with these values; block tags take no line."""
    import jinja2

    page = template.read_text("utf-8")
    return jinja2.Template(page, trim_blocks=True, keep_trailing_newline=True).render(values)
