"""Imports of libraries, and commands that messages suggest: how to install a missing one, this program's.

Commands to install differ with and without a checkout.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coding_model_project.errors import ConfigError


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


_ABOVE_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = "coding-model-project"


def checkout() -> Path | None:
    """Return the repository that this package runs from; None if it was installed from a wheel."""
    files = ("Makefile", "pyproject.toml")
    here = all((_ABOVE_PACKAGE / name).is_file() for name in files)
    return _ABOVE_PACKAGE if here else None


def how_to_install(extra: str = "train", *, gpu: bool = False) -> str:
    """Return the shell command that installs an extra of this package.

    Args:
        extra: a key of `[project.optional-dependencies]`. `make setup` installs all of them.
        gpu: whether the extra uses an accelerator, for which a checkout pins other versions.
    """
    if checkout() is None:
        return f"pip install '{_NAME}[{extra}]{_installed_from()}'"
    return "pip install -r requirements/gpu.txt" if gpu and extra == "train" else "make setup"


def how_to_install_itself() -> str:
    """Return the command that installs this package without dependencies."""
    place = "-e . in the project's folder" if checkout() else _NAME
    return f"pip install --no-deps {place}"


def _installed_from() -> str:
    """Return pip's source of this package as a requirement suffix; empty if that is an index."""
    import json
    from importlib import metadata

    try:
        origin = metadata.distribution(_NAME).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    found = json.loads(origin) if origin else {"dir_info": {"editable": True}}
    return "" if found.get("dir_info", {}).get("editable") else f" @ {found['url']}"


SCRIPT = "coding-model"
"""The console script; the same program as `MODULE`."""

MODULE = "python -m coding_model_project"

RECIPES = {
    "baseline": "evaluate a model or a server",
    "sft": "fine-tune on verified demonstrations",
    "dpo": "learn from preference pairs",
    "grpo": "RL on rewards from executed programs",
    "repair": "GRPO in which failing programs are repaired",
    "harbor": "GRPO on Harbor tasks, in a shell",
    "pipeline": "all five phases, compared in one table",
    "demo": "SFT and GRPO from nothing, in minutes on two CPU cores",
}
"""One-line description of each `python -m recipes.NAME`."""


def program() -> str:
    """Return the command line's name as typed; `MODULE` in a process of any other program."""
    return SCRIPT if Path(sys.argv[0]).name == SCRIPT else MODULE
