"""Install commands for messages; they differ with and without a checkout."""

from __future__ import annotations

from pathlib import Path

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
