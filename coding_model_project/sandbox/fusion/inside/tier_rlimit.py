"""The driver's hardening of the embedded sandbox's tier rlimit, its last resort."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Confinement, Tier
from coding_model_project.sandbox.embedded import zygote

_NOBODY = 65534
_EXECUTE_BY_OTHERS = 0o001


def strengthen() -> None:
    """Isolate programs from the driver and from each other, although that tier closes no files.

    They have no capabilities, and cannot signal, trace or start processes. If the server runs as root,
    they become nobody, unless only root may read this Python.
    """
    linux.hide_memory()
    plain = zygote.prepare

    def prepare(tier: Tier, granted: None = None) -> Confinement:
        confinement = replace(plain(tier), filter=linux.Filter.build())
        if os.getuid() == 0 and all(map(_is_open_to_others, sys.path)):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        return confinement

    zygote.prepare = prepare


def _is_open_to_others(folder: str) -> bool:
    """Return whether every user may import from a folder, or it does not exist."""
    path = Path(folder)
    if not path.exists():
        return True
    steps = [step for step in (path, *path.parents) if step.is_dir()]
    return all(step.stat().st_mode & _EXECUTE_BY_OTHERS for step in steps)
