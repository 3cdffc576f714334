"""Imports of optional libraries: an error that names a missing extra, and large libraries sooner."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from coding_model_project.errors import ConfigError
from coding_model_project.install import how_to_install


class NotInstalledError(ConfigError):
    """A missing library. Names the command that installs it."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn a failed import of an extra's library into an error that says how to install it.

        with extra("stats"):
            from scipy import stats

    Raises:
        NotInstalledError: the library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("", __package__):
            raise
        message = f"{library} is not installed; run: {how_to_install(name)}"
        raise NotInstalledError(message) from error


@contextmanager
def without_collections() -> Iterator[None]:
    """Import large libraries sooner: collections of garbage are a quarter of vLLM's and verl's import."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
