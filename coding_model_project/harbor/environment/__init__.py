"""Environments of Harbor tasks: the protocol `base.Environment`, and its implementations by name.

`harbor run -e coding_model_project.harbor.environment:EmbeddedEnvironment` runs Harbor's jobs in rooms.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """Import `EmbeddedEnvironment` on first use, since only it needs the `harbor` package.

    Raises:
        ConfigError: `harbor` is not installed.
    """
    if name != "EmbeddedEnvironment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coding_model_project.errors import ConfigError

    try:
        importlib.import_module("harbor.environments")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "EmbeddedEnvironment needs Harbor's package, which is not installed: pip install harbor "
            "(Python 3.12 or later)"
        ) from error
    from coding_model_project.harbor.environment.harbor_backend import EmbeddedEnvironment

    return EmbeddedEnvironment
