"""Check that verl has loaded the CPU platform, which `cpu` adds through verl's entry point."""

from __future__ import annotations

import importlib
import os

from coding_model_project.errors import ConfigError
from coding_model_project.extras import how_to_install, how_to_install_itself


def check_cpu_plugin() -> None:
    """Make sure that verl has loaded the CPU platform.

    verl logs a plugin's failed import at debug level only. The run would fail much later with
    "Unknown platform 'cpu'".

    Raises:
        ConfigError: the plugin is not installed, or does not load.
    """
    if os.environ.get("VERL_PLATFORM") != "cpu":
        return
    try:
        from verl.plugin.platform.platform_manager import PlatformRegistry

        registered = PlatformRegistry.get("cpu") is not None
        if not registered:
            importlib.import_module("coding_model_project.verl_ext.cpu")
    except Exception as error:
        raise ConfigError(
            f"the CPU platform for verl does not load: {type(error).__name__}: {error}; "
            f"run `{how_to_install()}` to install the pinned versions"
        ) from error
    if not registered:
        raise ConfigError(
            "verl did not load the CPU platform through its entry point `verl.plugins`: install this "
            f"package ({how_to_install_itself()}), or unset VERL_USE_EXTERNAL_PLUGINS"
        )
