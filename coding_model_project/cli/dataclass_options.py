"""Commands that take whole dataclasses: each field is an option.

    @app.command()
    @takes_dataclasses
    def check(sandbox: Annotated[SandboxConfig, only("min_tier", "python")]) -> int: ...

is a command with the options --min-tier and --python. The field states the option (`config_key.Option`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from coding_model_project.config_key import Option
from coding_model_project.errors import ConfigError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Only:
    """The names of the fields that a command takes, in the order of its help."""

    names: tuple[str, ...]


def only(*names: str) -> Only:
    """Limit a command's dataclass to these fields, in this order; the others keep their defaults."""
    return Only(names)


def takes_dataclasses(command: Callable[..., R]) -> Callable[..., R]:
    """Replace each parameter that is a dataclass by the options of its fields.

    The command gets the dataclass, made from the options' values. A parameter annotated with `only` gets
    the named fields, otherwise all that have an option.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    taken: dict[str, tuple[type, list[_FieldOption]]] = {}
    for parameter in signature.parameters.values():
        config, names = _dataclass_of(parameter.annotation)
        if config is None:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        options = list(_field_options(config, names))
        taken[parameter.name] = config, options
        parameters += [option.parameter() for option in options]

    @functools.wraps(command)
    def with_dataclasses(**values: Any) -> R:
        for name, (config, options) in taken.items():
            words = {option: values.pop(option.field.name) for option in options}
            given = {option: word for option, word in words.items() if word is not None}
            values[name] = config(**{one.field.name: one.parsed(given[one]) for one in given})
        return command(**values)

    # What typer reads; the parameters' own annotations would hide those of fields with the same name.
    with_dataclasses.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_dataclasses.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_dataclasses


def typer_option(option: Option, *names: str) -> Any:
    """Return typer's form of an option, for `Annotated`; `names` are for one that names none."""
    return typer.Option(
        *(option.name.split() or names),
        help=option.help,
        metavar=option.metavar,
        min=option.min,
        envvar=option.envvar,
        rich_help_panel=option.panel,
    )


@dataclass(frozen=True, slots=True)
class _FieldOption:
    """A field as an option."""

    field: Field[Any]
    type: Any
    option: Option

    def parameter(self) -> inspect.Parameter:
        """Return the parameter from which typer makes the option."""
        default, kind = self.field.default, self.type
        if self.field.default_factory is not MISSING:  # typer's "not given" is None
            default, kind = None, _on_command_line(kind)
        if self.option.required or default is MISSING:
            default = inspect.Parameter.empty
        # A switch that is off by default needs no --no-switch.
        names = [f"--{self.field.name.replace('_', '-')}"] if default is False else []
        return inspect.Parameter(
            self.field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, typer_option(self.option, *names)],
        )

    def parsed(self, value: Any) -> Any:
        """Convert the option's value to the field's.

        Raises:
            ConfigError: a text is not of the field's form.
        """
        if get_origin(self.type) is tuple:
            return tuple(value)
        if self.type == dict[str, str]:
            from coding_model_project.data.loaders.forms import parse_map

            return parse_map(value)
        if get_origin(self.type) is dict:
            return _json_object(f"--{self.field.name.replace('_', '-')}", value)
        return value


def _dataclass_of(annotation: Any) -> tuple[type | None, tuple[str, ...] | None]:
    config, *more = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if not (isinstance(config, type) and is_dataclass(config)):
        return None, None
    return config, next((one.names for one in more if isinstance(one, Only)), None)


def _field_options(config: type, names: tuple[str, ...] | None) -> Iterator[_FieldOption]:
    hints = get_type_hints(config)
    by_name = {field.name: field for field in fields(config)}
    for name in by_name if names is None else names:
        option: Option | None = by_name[name].metadata.get("option")
        if option is not None:
            yield _FieldOption(by_name[name], hints[name], option)
        elif names is not None:
            raise TypeError(f"{config.__name__}.{name} has no option")


def _on_command_line(kind: Any) -> Any:
    """Return the type of a list's or dict's option: repeated words, or the text of a JSON object."""
    if get_origin(kind) is dict:
        return list[str] | None if kind == dict[str, str] else str | None
    return list[get_args(kind)[0]] | None


def _json_object(option: str, text: str) -> dict[str, Any]:
    import orjson

    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}={text}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{option}={text}: expected a JSON object such as '{{\"key\": 1}}'")
    return found
