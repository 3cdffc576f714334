"""Where Harbor tasks run: the protocol `base.Environment`, and rooms of this machine's namespaces.

`harbor run -e coding_model_project.harbor.environment:EmbeddedEnvironment` runs Harbor's own jobs so.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """`EmbeddedEnvironment`, which takes the `harbor` package; nothing else here does.

    Raises:
        ConfigError: it is not installed.
    """
    if name != "EmbeddedEnvironment":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coding_model_project.errors import ConfigError

    try:
        importlib.import_module("harbor.environments")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "EmbeddedEnvironment is for Harbor's own runner, whose package is not installed: "
            "pip install harbor (Python 3.12 or later)"
        ) from error
    from coding_model_project.harbor.environment.harbor_backend import EmbeddedEnvironment

    return EmbeddedEnvironment
