"""A recipe's command line: overrides and flags in any order, Hydra's flags and ours."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from coding_model_project.errors import ConfigError

_SHOW = ("cfg", "info", "hydra_help", "shell_completion")
"""Hydra's flags that print something instead of starting a run."""
_ELSEWHERE = ("config_path", "config_name", "config_dir", "experimental_rerun")
"""Hydra's flags that compose the configuration from files other than the recipe's."""
_OURS = ("--debug", "--config")


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
    debug: bool
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
    parser = _parser()
    overrides = [word for word in argv if _is_override(word)]
    words = [word for word in argv if not _is_override(word)]
    found, unknown = parser.parse_known_args(words)
    for word in [*unknown, *found.overrides]:
        _refuse(parser, word)
    shows = any(getattr(found, name) for name in _SHOW)
    if shows and found.multirun:
        raise ConfigError("-m: a sweep has no configuration of its own to show; leave -m out")
    if found.config is not None:
        _check_repeating(overrides)
    _refuse_other_trees(overrides, found.config_name)
    return Arguments(
        overrides=tuple(overrides),
        hydra=tuple(_without_ours(words)),
        sweeps=found.multirun,
        shows=shows,
        elsewhere=any(getattr(found, name) for name in _ELSEWHERE),
        debug=found.debug,
        recorded=found.config,
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


def _parser() -> argparse.ArgumentParser:
    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")

    parser = get_args_parser()
    parser.allow_abbrev = False  # --config is ours, not an abbreviation of Hydra's --config-dir
    parser.error = refuse  # type: ignore[method-assign]
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--config")
    return parser


def _refuse(parser: argparse.ArgumentParser, word: str) -> NoReturn:
    if not word.startswith("-"):
        raise ConfigError(f"{word}: expected key=value, without spaces around `=` (see --help)")
    flags = [flag for action in parser._actions for flag in action.option_strings]
    close = difflib.get_close_matches(word.split("=")[0], flags, n=1, cutoff=0.6)
    near = f"; did you mean {close[0]}?" if close else " (see --help)"
    raise ConfigError(f"{word}: no such option{near}")


def _check_repeating(overrides: Sequence[str]) -> None:
    other = [word for word in overrides if not word.startswith("coding.run_dir=")]
    if other:
        raise ConfigError(
            f"{other[0]}: --config repeats a run by its recorded configuration, and only "
            "coding.run_dir may be set with it; for other settings start the recipe without --config"
        )


def _without_ours(words: Sequence[str]) -> list[str]:
    """Return Hydra's flags: all but --debug, and --config with its value."""
    kept: list[str] = []
    skip = False
    for word in words:
        ours = word.split("=")[0] in _OURS
        if not ours and not skip:
            kept.append(word)
        skip = word == "--config"
    return kept
