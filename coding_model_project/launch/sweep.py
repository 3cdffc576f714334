"""A sweep (-m): each member runs in its own process and folder, named by the swept values.

A member that fails or is killed does not affect the others. The same command resumes the sweep: it
skips finished members and resumes the others.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException
from omegaconf import OmegaConf

from coding_model_project.errors import INTERRUPTED, ConfigError, TrainingError
from coding_model_project.isolation.child import start_child
from coding_model_project.launch.checks import checks
from coding_model_project.launch.compose import UNREADABLE, compose_recipe
from coding_model_project.launch.steps import how_ended
from coding_model_project.redaction import redacted
from coding_model_project.runs.folder import refuse_unusable

_NAMES = "hydra.job.config.override_dirname"
_SEPARATOR = "__"
"""Separator in a member's name; not a comma, which separates folders in `eval compare`."""


def naming(given: Sequence[str]) -> list[str]:
    """Return Hydra overrides that name members by the swept values only."""
    fixed = [one.key_or_group for one in _parsed(given) if not one.is_sweep_override()]
    excluded = ",".join(["hardware", *dict.fromkeys(fixed)])
    return [f"{_NAMES}.item_sep={_SEPARATOR}", f"{_NAMES}.exclude_keys=[{excluded}]"]


def check_members(name: str, given: Sequence[str], overrides: Sequence[str]) -> None:
    """Compose and check every member before the first one starts.

    Args:
        given: the user's overrides, some with several values.
        overrides: overrides that this package adds to every member.

    Raises:
        ConfigError: a key is wrong, or several members would write to one URL; the message names the key.
    """
    urls: set[tuple[str, str]] = set()
    for batch in BasicSweeper.split_arguments(_parsed(given), None):
        for number, member in enumerate(batch):
            keys = [one for one in member if not one.startswith("hydra")]
            config = compose_recipe(name, [*keys, *overrides])
            checks.check_values(config)
            refuse_unusable("coding.run_dir", config.coding.run_dir)
            config.coding.run_dir += f"/{number}"  # `run_member` gives each its own
            for key in ("coding.checkpoints.url", "coding.mirror.url"):
                url = OmegaConf.select(config, key)
                if url is None:
                    continue
                if (key, url) in urls:
                    raise ConfigError(
                        f"{key}={url}: several members of the sweep would write there; give each its "
                        f"own by a value that is swept, such as '{key}={url}/${{coding.seed}}'"
                    )
                urls.add((key, url))


def _parsed(given: Sequence[str]) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides(list(given))
    except OverrideParseException as error:
        raise ConfigError(f"{error.override}: {UNREADABLE}") from error


def run_member(name: str) -> None:
    """Run Hydra's current member, and wait for it.

    Raises:
        TrainingError: the member failed. The error is also printed at once, because Hydra runs the
            remaining members first.
        KeyboardInterrupt: the member was interrupted, which ends the sweep.
    """
    current = HydraConfig.get()
    folder = Path(current.runtime.output_dir)
    if (saved := Path(current.sweep.dir, "multirun.yaml")).exists():  # which Hydra wrote
        saved.write_text(redacted(saved.read_text()))
    keys = [one for one in current.overrides.task if not one.startswith("coding.run_dir=")]
    quoted = str(folder).replace("'", "\\'")
    command = [sys.executable, "-m", f"recipes.{name}", *keys, f"coding.run_dir='{quoted}'"]
    os.environ.setdefault("WANDB_RUN_GROUP", Path(current.sweep.dir).name)
    print(f"{folder.name}: in {folder}", flush=True)
    code = _run(command)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        message = f"{folder.name} {how_ended(code)}; run the same command again to resume"
        print(f"error: {message}", file=sys.stderr, flush=True)
        raise TrainingError(message)


def _run(command: Sequence[str]) -> int:
    """Run a child that receives this process's signals and does not outlive it; return its exit code."""
    process = start_child(command)
    forwarded = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda n, _: process.send_signal(n)) for one in forwarded]
    try:
        return process.wait()
    finally:
        for number, handler in zip(forwarded, before, strict=True):
            signal.signal(number, handler)
