"""A recipe's command line: overrides and flags in any order, Hydra's flags and ours; and sweeps."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import OverrideParseException
from omegaconf import OmegaConf

from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.launch.checks import checks
from coding_model_project.launch.compose import UNREADABLE, compose_recipe
from coding_model_project.launch.steps import running
from coding_model_project.redaction import redacted
from coding_model_project.runs.folder import refuse_unusable

_SHOW = ("cfg", "info", "hydra_help", "shell_completion")
"""Hydra's flags that print something instead of starting a run."""
_ELSEWHERE = ("config_path", "config_name", "config_dir", "experimental_rerun")
"""Hydra's flags that compose the configuration from files other than the recipe's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """A parsed command line."""

    overrides: tuple[str, ...]
    hydra: tuple[str, ...]
    """Hydra's own flags with their values."""
    sweeps: bool
    shows: bool
    """True to print the configuration, or something about it, instead of starting a run."""
    elsewhere: bool
    """True if the configuration is composed from files other than the recipe's."""
    recorded: str | None
    """Path to the recorded configuration of a run to repeat."""

    def value(self, key: str) -> str | None:
        """Return the value of a key; None if no override sets it."""
        given = dict(override.split("=", 1) for override in self.overrides if "=" in override)
        return given.get(key)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse a recipe's command line.

    Raises:
        ConfigError: an argument is neither an override nor a flag, or flags exclude each other.
    """
    ours, hydras = argparse.ArgumentParser(add_help=False), get_args_parser()
    ours.add_argument("--debug", action="store_true")
    ours.add_argument("--config")
    for parser in (ours, hydras):
        parser.allow_abbrev = False  # --config is no abbreviation of Hydra's --config-dir
        parser.error = _refuse
    overrides = [word for word in argv if _is_override(word)]
    own, words = ours.parse_known_args([word for word in argv if not _is_override(word)])
    found, unknown = hydras.parse_known_args(words)
    for word in [*unknown, *found.overrides]:
        _refuse_word(word, [*ours._actions, *hydras._actions])
    shows = any(getattr(found, name) for name in _SHOW)
    if shows and found.multirun:
        raise ConfigError("-m: a sweep has no configuration of its own to show; leave -m out")
    other = [word for word in overrides if not word.startswith("coding.run_dir=")]
    if own.config is not None and other:
        raise ConfigError(
            f"{other[0]}: --config repeats a run by its recorded configuration, and only "
            "coding.run_dir may be set with it; for other settings start the recipe without --config"
        )
    _refuse_other_trees(overrides, found.config_name)
    return Arguments(
        overrides=tuple(overrides),
        hydra=tuple(words),
        sweeps=found.multirun,
        shows=shows,
        elsewhere=any(getattr(found, name) for name in _ELSEWHERE),
        recorded=own.config,
    )


def _refuse_other_trees(overrides: Sequence[str], config_name: str | None) -> None:
    """Refuse what replaces the recipe's own configuration by verl's, or its search path.

    Raises:
        ConfigError: names the argument and the remedy.
    """
    for word in overrides:
        if word.lstrip("+").startswith("hydra.searchpath="):
            raise ConfigError(
                f"{word}: would replace the recipe's own search path; --config-dir=FOLDER adds a folder"
            )
    if config_name is not None and config_name.startswith("ppo_"):
        raise ConfigError(
            f"--config-name={config_name}: recipes have their own configuration and train with FSDP; "
            "leave it out, or train with `python -m verl.trainer.main_ppo`"
        )


def _is_override(word: str) -> bool:
    """Return whether a word is `key=value`, `+key=value` or `~key`.

    Flags begin with a dash, and their values contain no `=`.
    """
    return not word.startswith("-") and ("=" in word or word.startswith("~"))


def _refuse(message: str) -> NoReturn:
    raise ConfigError(f"{message} (see --help)")


def _refuse_word(word: str, known: Sequence[argparse.Action]) -> NoReturn:
    if not word.startswith("-"):
        raise ConfigError(f"{word}: expected key=value, without spaces around `=` (see --help)")
    flags = [flag for action in known for flag in action.option_strings]
    close = difflib.get_close_matches(word.split("=")[0], flags, n=1, cutoff=0.6)
    near = f"; did you mean {close[0]}?" if close else " (see --help)"
    raise ConfigError(f"{word}: no such option{near}")


# ── sweeps ────────────────────────────────────────────────────────────────────────────────────────────
#
# Each member of a sweep (-m) runs in its own process and folder, named by the swept values. A member
# that fails or is killed does not affect the others. The same command resumes the sweep: it skips
# finished members and resumes the others.


_NAMES = "hydra.job.config.override_dirname"
_SEPARATOR = "__"
"""Separator in a member's name; not a comma, which separates folders in `eval compare`."""


def member_naming(given: Sequence[str]) -> list[str]:
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
    os.environ.setdefault("WANDB_RUN_GROUP", Path(current.sweep.dir).name)
    print(f"{folder.name}: in {folder}", flush=True)
    try:
        with running([f"recipes.{name}", *keys, f"coding.run_dir='{quoted}'"], name=folder.name):
            pass
    except TrainingError as error:
        message = f"{error}; run the same command again to resume"
        print(f"error: {message}", file=sys.stderr, flush=True)
        raise TrainingError(message) from error
