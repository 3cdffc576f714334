"""Helpers that several commands share."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import CodingModelError, ConfigError

if TYPE_CHECKING:
    from coding_model_project.data.loaders import SetAside
    from coding_model_project.sandbox.base import Sandbox
    from coding_model_project.sandbox.sandbox_config import SandboxConfig

_N_SHOWN = 20
P = ParamSpec("P")
R = TypeVar("R")


def cores(given: int | None) -> int:
    """Return the given number, or by default the number of CPU cores available to this process."""
    return given or usable_cores()


def embedded_sandbox(config: SandboxConfig) -> Sandbox:
    """Return an embedded sandbox that has not been started."""
    from coding_model_project.grading.judge import make_sandbox

    return make_sandbox(config)


def on_servers(config: SandboxConfig) -> SandboxConfig:
    """Return the configuration with SandboxFusion selected if it has servers."""
    return replace(config, name="fusion") if config.urls else config


def existing_file(path: Path, option: str) -> Path:
    """Return the path of an existing file, or of a local copy of the object behind a URL.

    Raises:
        ConfigError: the file does not exist; names the option.
        DownloadError: the store does not answer.
    """
    from coding_model_project.storage.fetching import on_disk
    from coding_model_project.storage.object_store import is_url

    if is_url(path):
        try:
            return on_disk(path)
        except CodingModelError as error:
            raise type(error)(f"{option}: {error}") from error
    if not path.is_file():
        raise ConfigError(f"{option}: {path}: no such file")
    return path


@contextmanager
def local_runs(
    paths: Sequence[Path], *, every_s: float | None = None, light: bool = False
) -> Iterator[tuple[list[Path], Callable[[Path], str]]]:
    """Yield local folders in place of mirrored runs' URLs, and a function that names them for display.

    Args:
        every_s: seconds between polls for changes; None pulls once.
        light: skip samples, logs and traces.

    Raises:
        ConfigError: a URL has no mirrored run, or cannot be read.
        DownloadError: the store does not answer.
    """
    from coding_model_project.storage.object_store import as_url, is_url

    if not any(map(is_url, paths)):
        yield list(paths), str
        return
    from coding_model_project.runs.following import Followed, everything, is_light, pulling

    followed = {
        path: Followed(as_url(path), is_light if light else everything)
        for path in paths
        if is_url(path)
    }
    for one in followed.values():
        one.pull()

    def shown(path: Path) -> str:
        roots = [one for one in followed.values() if path.is_relative_to(one.root)]
        return roots[0].shown(path) if roots else str(path)

    folders = [followed[path].root if path in followed else path for path in paths]
    with pulling(list(followed.values()) if every_s else [], every_s or 0, warn):
        yield folders, shown


say = partial(print, flush=True)
"""Print a line and flush it, because standard output may be a followed file."""


def warn(line: str) -> None:
    """Print a line to standard error, and flush it."""
    print(line, file=sys.stderr, flush=True)


def named_values(
    option: str, words: Sequence[str] | None, *, form: str = "NAME=VALUE", empty: bool = False
) -> dict[str, str]:
    """Parse an option's NAME=VALUE words.

    Args:
        form: expected form, for the message.
        empty: accept an empty value.

    Raises:
        ConfigError: a word has another form.
    """
    values: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not name or not equals or not (value or empty):
            raise ConfigError(f"{option}={word}: expected {form}")
        values[name] = value
    return values


def publishes(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command's --out be a URL: write to a temporary folder, then upload it."""

    @functools.wraps(command)
    def published_command(*args: P.args, **kwargs: P.kwargs) -> R:
        from coding_model_project.storage.fetching import published
        from coding_model_project.storage.object_store import is_url

        out = kwargs.get("out")
        if not isinstance(out, Path) or not is_url(out):
            return command(*args, **kwargs)
        with published(out) as local:
            kwargs["out"] = local
            return command(*args, **kwargs)

    return published_command


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    width: int | None = None,
) -> None:
    """Print a table without lines.

    Args:
        left: see `evaluation.tables.plain_table`.
        width: its width in characters; None is the terminal's.
    """
    from rich.console import Console

    from coding_model_project.evaluation.tables import plain_table

    Console(width=width, highlight=False).print(plain_table(columns, rows, left=left))


def print_first(lines: Sequence[str]) -> None:
    """Print the first lines to standard error, and the number of the others."""
    for line in lines[:_N_SHOWN]:
        print(line, file=sys.stderr)
    if len(lines) > _N_SHOWN:
        print(f"and {len(lines) - _N_SHOWN} more", file=sys.stderr)


def print_set_aside(notes: Iterable[str], set_aside: Sequence[SetAside], n_used: int) -> None:
    """Print why rows are not used, most frequent reasons first."""
    for note in notes:
        print(f"note: {note}")
    if not set_aside:
        return
    print(f"{len(set_aside)} rows set aside, {n_used} used:")
    for reason, count in Counter(row.reason for row in set_aside).most_common(_N_SHOWN):
        first = next(row.where for row in set_aside if row.reason == reason)
        print(f"  {count} × {reason} (first: {first})")
