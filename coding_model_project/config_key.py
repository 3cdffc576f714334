"""Keys of the configuration: default, meaning, and option on a command line; values that name a callable.

A command takes the dataclass as one parameter (`cli.commands`), so that an option's name, type, default
and help text are written once, beside the field.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from pkgutil import resolve_name
from typing import Any

from coding_model_project.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Option:
    """A field's option on a command line."""

    help: str
    """A verb phrase with unit and default."""
    name: str = ""
    """Such as "--from" or "-n --per-problem". Default: "--" and the field's name."""
    metavar: str | None = None
    """The value's name in the help. Default: its type."""
    min: float | None = None
    max: float | None = None
    panel: str | None = None
    """Title of the panel of the help that shows the option."""
    envvar: str | None = None
    """Environment variable that replaces the option."""
    required: bool = False
    """Refuse a command line without it, although the field has a default."""
    is_argument: bool = False
    """It is given by its position, without a name."""


def key(default: Any, meaning: str, *, unit: str = "", option: Option | None = None) -> Any:
    """Return a dataclass field for a configuration key.

    Args:
        default: its default; a list or dict is copied for each configuration.
        meaning: its description in the reference, in Markdown.
        unit: the unit of its value, if that is a quantity.
        option: its option on command lines that take it.
    """
    return _field(default, {"meaning": meaning, "unit": unit, "option": option})


def key_and_option(default: Any, meaning: str, *, unit: str = "", **more: Any) -> Any:
    """Return a dataclass field for a key that is also an option, with one text for both.

    Args:
        default, meaning, unit: as for `key`. The option's help is the meaning as plain text, in which
            "null: …" becomes "Default: …".
        more: further fields of `Option`.
    """
    help = re.sub(r"\bnull(?=[:,])", "Default", meaning.replace("`", ""))
    return key(default, meaning, unit=unit, option=Option(help, **more))


def option(default: Any, help: str | Option, name: str = "", **more: Any) -> Any:
    """Return a dataclass field, or a default of a command's parameter, that is an option.

    Args:
        default: its default; a list or dict is copied; `...` has none.
        help, name, more: fields of `Option`, or an `Option` that another field has (`option_of`).
    """
    shown = help if isinstance(help, Option) else Option(help, name, **more)
    return _field(default, {"option": shown})


def argument(default: Any, help: str, **more: Any) -> Any:
    """Return a default of a command's parameter that is an argument; `option` has the details."""
    return option(default, help, is_argument=True, **more)


def option_of(config: type, name: str) -> Option:
    """Return the option of a dataclass's field, for another field that has the same one."""
    return replace(config.__dataclass_fields__[name].metadata["option"], required=False)


def too_small(config: Any) -> Iterator[str]:
    """Yield "name=value: must be at least N" for each field below the minimum of its option."""
    for one in fields(config):
        least = one.metadata["option"].min if one.metadata.get("option") else None
        value = getattr(config, one.name)
        if least is not None and value is not None and value < least:
            yield f"{one.name}={value}: must be at least {least:g}"


def _field(default: Any, metadata: dict[str, Any]) -> Any:
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=MISSING if default is ... else default, metadata=metadata)


def named_callable(key: str, name: str, known: str) -> Any:
    """Import the callable that a configuration names.

    Args:
        known: what to use instead, for the message.

    Raises:
        ConfigError: the name cannot be imported, or is not callable.
    """
    module, colon, _ = name.partition(":")
    try:
        if not (module and colon):
            raise ValueError("no such name")
        if callable(found := resolve_name(name)):
            return found
        raise ValueError("not callable")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}={name}: {error}; use {known}") from error
