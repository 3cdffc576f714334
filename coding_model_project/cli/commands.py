"""Commands whose options are parameters or the fields of whole dataclasses.

    app = Commands()

    @app.command()
    def check(sandbox: Annotated[SandboxConfig, only("min_tier")], deep: bool = option(False, "…")): ...

makes a command with the options --min-tier and --deep. The field and the parameter state their options
in the same way (`config_key.Option`). A list's option is repeatable. So is that of a `dict[str, T]`, as
NAME=VALUE words; that of a `dict[str, Any]` is a JSON object. A command may be a coroutine.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from coding_model_project.config_key import Option
from coding_model_project.errors import ConfigError

R = TypeVar("R")
Command = TypeVar("Command", bound=Callable[..., Any])
_Sections = dict[str, list[tuple[str, str]]]
"""Title of a section of a help page → names and texts."""
_WHOLE = 1000  # characters: no first sentence is cut


class Commands(typer.Typer):
    """A group of such commands. Its help is plain text: typer's tables cut names off at 80 columns."""

    def __init__(self, **settings: Any) -> None:
        own: dict[str, Any] = {
            "cls": Group,
            "rich_markup_mode": None,
            "pretty_exceptions_enable": False,
        }
        super().__init__(**(own | settings))

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """Register a function as a command; typer documents the settings."""
        return _registering(super().command(name, cls=_Command, **settings))

    def callback(self, **settings: Any) -> Callable[[Command], Command]:
        """Register a function that runs before the group's commands."""
        return _registering(super().callback(**settings))


def _registering(register: Callable[..., Any]) -> Callable[[Command], Command]:
    def registered(command: Command) -> Command:
        register(_for_typer(command))
        return command

    return registered


class _Command(TyperCommand):
    """A command whose help has a section for each panel of options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: _Sections = {}
        for one in self.get_params(ctx):
            title = getattr(one, "rich_help_panel", None) or f"{one.param_type_name.title()}s"
            if record := one.get_help_record(ctx):
                sections.setdefault(title, []).append(record)
        _write_sections(formatter, sections)


class Group(TyperGroup):
    """A group whose help has a section for each panel of commands, with their whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: _Sections = {}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            if not command.hidden:
                row = name, command.get_short_help_str(_WHOLE)
                sections.setdefault(command.rich_help_panel or "Commands", []).append(row)
        _write_sections(formatter, sections)


def _write_sections(formatter: Any, sections: _Sections) -> None:
    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)


def only(*names: str) -> tuple[str, ...]:
    """Limit a command's dataclass to these fields, in this order; the others keep their defaults."""
    return names


def _for_typer(command: Callable[..., R]) -> Callable[..., R]:
    """Return a function with typer's parameters, which makes those of the command from them."""
    signature = inspect.signature(command, eval_str=True)
    takes: dict[str, tuple[type | None, list[_Taken]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        config, names = _dataclass_of(parameter.annotation)
        if config is not None:
            taken = list(_taken_fields(config, names))
        elif isinstance(parameter.default, Field):
            taken = [_Taken(parameter.name, parameter.annotation, parameter.default)]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        takes[parameter.name] = config, taken
        parameters += [one.parameter() for one in taken]

    @functools.wraps(command)
    def with_typers_parameters(**words: Any) -> R:
        made = {}
        for name, (config, taken) in takes.items():
            values = {one.name: one.value(words.pop(one.name)) for one in taken}
            made[name] = values[name] if config is None else config(**values)
        found: Any = command(**made, **words)
        return asyncio.run(found) if inspect.iscoroutine(found) else found

    # What typer reads. Annotations of the command would hide those of fields with the same name.
    with_typers_parameters.__signature__ = signature.replace(parameters=parameters)  # pyrefly: ignore[missing-attribute]
    with_typers_parameters.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_typers_parameters


@dataclass(frozen=True, slots=True)
class _Taken:
    """A field or parameter as an option."""

    name: str
    type: Any
    field: Field[Any]

    @property
    def option(self) -> Option:
        return self.field.metadata["option"]

    @property
    def flag(self) -> str:
        return (self.option.name or f"--{self.name.replace('_', '-')}").split()[0]

    def parameter(self) -> inspect.Parameter:
        """Return the parameter from which typer makes the option."""
        option, default, kind = self.option, self.field.default, self.type
        names = option.name.split()
        if self.field.default_factory is not MISSING:  # typer's "not given" is None
            default, kind = None, _on_command_line(kind) | None
        elif default is False:  # a switch that is off by default needs no --no-switch
            names = names or [self.flag]
        shown = (typer.Argument if option.is_argument else typer.Option)(
            *names,
            help=option.help,
            metavar=option.metavar,
            min=option.min,
            max=option.max,
            envvar=option.envvar,
            rich_help_panel=option.panel,
        )
        if option.required or default is MISSING:
            default = inspect.Parameter.empty
        annotation = Annotated[kind, shown]
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )

    def value(self, word: Any) -> Any:
        """Return the field's value for what typer has read.

        Raises:
            ConfigError: a text is not of the field's form.
        """
        if word is None:
            factory = self.field.default_factory
            return None if factory is MISSING else factory()
        if get_origin(self.type) is not dict:
            return word
        return _json_object(self.flag, word) if isinstance(word, str) else self._pairs(word)

    def _pairs(self, words: list[str]) -> dict[str, Any]:
        """Parse NAME=VALUE words; only the VALUE of a variable may be empty."""
        form, kind = self.option.metavar or "", get_args(self.type)[1]
        found: dict[str, Any] = {}
        for word in words:
            name, equals, value = word.partition("=")
            try:
                if not name or not equals or not (value or form.endswith("=VALUE")):
                    raise ValueError("a part is missing")
                given = kind(value)
            except ValueError as error:
                raise ConfigError(f"{self.flag}={word}: expected {form}") from error
            if name in found:  # the message leaves out the value, which may be a secret
                raise ConfigError(f"{self.flag}={name}: it occurs twice")
            found[name] = given
        return found


def _dataclass_of(annotation: Any) -> tuple[type | None, tuple[str, ...] | None]:
    config, *more = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if not (isinstance(config, type) and is_dataclass(config)):
        return None, None
    return config, next((one for one in more if isinstance(one, tuple)), None)


def _taken_fields(config: type, names: tuple[str, ...] | None) -> Iterator[_Taken]:
    """Yield the named fields, or all that have an option."""
    hints = get_type_hints(config)
    by_name = {field.name: field for field in fields(config)}
    for name in by_name if names is None else names:
        if by_name[name].metadata.get("option") is not None:
            yield _Taken(name, hints[name], by_name[name])
        elif names is not None:
            raise TypeError(f"{config.__name__}.{name} has no option")


def _on_command_line(kind: Any) -> Any:
    """Return the type of a list's or dict's option: repeated words, or the text of a JSON object."""
    if get_origin(kind) is dict:
        return str if kind == dict[str, Any] else list[str]
    return kind


def _json_object(option: str, text: str) -> dict[str, Any]:
    import orjson

    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}={text}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{option}={text}: expected a JSON object such as '{{\"key\": 1}}'")
    return found
