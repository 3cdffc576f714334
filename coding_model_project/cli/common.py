"""What commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from coding_model_project.errors import ConfigError

if TYPE_CHECKING:
    from coding_model_project.sandbox.base import Sandbox

Workers = Annotated[
    int | None, typer.Option(help="Programs judged at once; one per CPU core by default.", min=1)
]
MinTier = Annotated[
    str, typer.Option(help="Refuse weaker isolation: rlimit, seccomp or namespaces.")
]


class Advance(Protocol):
    """Moves a progress bar on by one."""

    def __call__(self, *_: object) -> None: ...


def embedded_sandbox(workers: int | None, min_tier: str) -> Sandbox:
    """The embedded sandbox, not yet started.

    Raises:
        ConfigError: no such tier.
    """
    from coding_model_project.judge import make_sandbox

    tiers = ("rlimit", "seccomp", "namespaces")
    if min_tier not in tiers:
        raise ConfigError(f"--min-tier={min_tier}: choose one of {', '.join(tiers)}")
    return make_sandbox({"name": "embedded", "workers": workers, "min_tier": min_tier})


def existing_file(path: Path, option: str) -> Path:
    """The path of a file that is there.

    Raises:
        ConfigError: it is not; names the option.
    """
    if not path.is_file():
        raise ConfigError(f"{option}: {path}: no such file")
    return path


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Advance]:
    """A progress bar on standard error, which leaves standard output to results."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)

        def advance(*_: object) -> None:
            progress.advance(task)

        yield advance
