"""A command of verl's trainer (a shell script, a list or a YAML file), and what becomes of its keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from coding_model_project.doctor.shell_script import Script, is_file, without_computed_folder
from coding_model_project.errors import ConfigError
from coding_model_project.launch.verl_keys import tree
from coding_model_project.launch.verl_keys.effects import examine
from coding_model_project.launch.verl_keys.table import LEAVE_OUT, Effect, Found, checked_for

MAIN_PPO = "verl.trainer.main_ppo"
_OTHER_MAIN = re.compile(r"verl[./]trainer[./](?!main_ppo)")
"""verl's other programs, such as its SFT trainer, whose keys are others."""
_OF_VERL = ("ppo_trainer.yaml", "ppo_megatron_trainer.yaml")
_OVERRIDE = re.compile(r"(?:\+{0,2}[\w@./-]+=.*|~[\w@./-]+(?:=.*)?)", re.DOTALL)
_MODULE = re.compile(r"(?!torch\.)\w+(?:\.\w+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that starts a trainer with Hydra's overrides."""

    entry: str
    """The module or script; main_ppo for a plain list of overrides."""
    overrides: tuple[str, ...]
    config_name: str = "ppo_trainer"
    config_path: str = ""
    own: DictConfig | None = None
    """The user's own configuration file, if it was found."""
    lacks: tuple[str, ...] = ()
    """Files and variables of the command that are not here, and may hold further overrides."""


def read(given: str) -> list[Command]:
    """Read commands from a file, or from the text itself if there is no such file.

    Raises:
        ConfigError: the file or the text has no override.
    """
    path = Path(given).expanduser()
    given_file = "\n" not in given and is_file(path)
    if given_file and path.suffix in (".yaml", ".yml"):
        own = _yaml(path)
        return [Command(entry=MAIN_PPO, overrides=(), config_name=_default(own), own=own)]
    text = path.read_text(errors="replace") if given_file else given
    folder = path.parent if given_file else Path()
    is_script = given_file and path.suffix == ".sh"
    if given_file and path.suffix == ".py":
        commands = _of_python(text, folder)
    else:
        commands = _commands(text, folder, is_script=is_script)
    found = [_with_own_file(one, folder) for one in commands if not _OTHER_MAIN.match(one.entry)]
    if not found:
        shown = given if given_file or given.split() == [given] else "--verl-overrides"
        why = "no override found" if given_file or shown != given else "no such file"
        if commands:
            why = f"{commands[0].entry} is not checked"
        raise ConfigError(
            f"{shown}: {why}; give a script that starts python -m {MAIN_PPO}, its overrides "
            "(key=value …), or a YAML file"
        )
    return found


def _yaml(path: Path) -> DictConfig:
    try:
        found = OmegaConf.load(path)
    except YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, DictConfig):
        raise ConfigError(f"{path}: expected a mapping of keys")
    return found


def _default(own: DictConfig) -> str:
    """Return the configuration of verl that a user's own file extends."""
    names = [one for one in own.get("defaults") or [] if isinstance(one, str)]
    return next((one for one in names if one.endswith("_trainer")), "ppo_trainer")


def _with_own_file(command: Command, folder: Path) -> Command:
    """Add the configuration file that --config-path and --config-name select, if it is here."""
    name = f"{command.config_name.removesuffix('.yaml')}.yaml"
    if name in _OF_VERL and command.config_path.rpartition("/")[2] in ("", "config"):
        return command
    place = without_computed_folder(command.config_path)
    for start in (folder, *folder.absolute().parents, Path()):
        file = start / place / name
        if file.is_file():
            own = _yaml(file)
            return replace(command, config_name=_default(own), own=own)
    shown = f"{command.config_path}/{name}".lstrip("/")
    return replace(command, lacks=(shown, *command.lacks))


def _of_python(text: str, folder: Path) -> list[Command]:
    """Read a program that starts the trainer: by a list of texts, or by one text for a shell."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError as error:
        raise ConfigError(f"--verl-overrides: not Python: {error}") from error
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = [_text(node) for node in nodes if id(node) not in inside]
    found = [word for word in texts if _OVERRIDE.fullmatch(word) and "." in word.partition("=")[0]]
    shell = [one for one in texts if MAIN_PPO in one and len(one.split()) > 1 and "=" in one]
    commands = [command for one in shell for command in _commands(one, folder, is_script=True)]
    if found and MAIN_PPO in texts:
        commands.append(Command(entry=MAIN_PPO, overrides=tuple(found)))
    return commands


def _text(node: ast.AST) -> str:
    """Return a text in a Python program, with its variables as a shell's; empty for all else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.FormattedValue):
        return f"${node.value.id}" if isinstance(node.value, ast.Name) else "$computed"
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _commands(text: str, folder: Path, *, is_script: bool) -> list[Command]:
    statements = list(Script(folder).commands(text))
    commands = [one for words in statements if (one := _command(words)) is not None]
    if commands or is_script:
        return commands
    plain = [word for words in statements for word in words if _OVERRIDE.fullmatch(word)]
    return [Command(entry=MAIN_PPO, overrides=tuple(plain))] if plain else []


def _command(words: list[str]) -> Command | None:
    """Return the trainer's command among some words; None if they start none."""
    entry, rest = "", words
    for number, word in enumerate(words):
        if word == "-m" and _MODULE.fullmatch("".join(words[number + 1 : number + 2])):
            entry, rest = words[number + 1], words[number + 2 :]
            break
        if word.endswith(".py") and "=" not in word:
            entry, rest = word, words[number + 1 :]
            break
    overrides = [word for word in rest if _OVERRIDE.fullmatch(word) and not word.startswith("-")]
    if not entry or not (overrides or "main_ppo" in entry):
        return None
    flags = _flags(rest)
    return Command(
        entry=entry,
        overrides=tuple(overrides),
        config_name=flags.get("--config-name", "ppo_trainer"),
        config_path=flags.get("--config-path", flags.get("--config-dir", "")),
        lacks=tuple(word for word in rest if re.fullmatch(r"\$\w+", word)),
    )


def _flags(words: list[str]) -> Mapping[str, str]:
    """Return Hydra's flags of a command, with or without `=`."""
    long = {"-cn": "--config-name", "-cp": "--config-path", "-cd": "--config-dir"}
    found: dict[str, str] = {}
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, sign, value = word.partition("=")
        if name in long or name in long.values():
            found[long.get(name, name)] = value if sign else after
    return found


# ── the effects of its keys ───────────────────────────────────────────────────────────────────────

FAULTS = (Effect.refused, Effect.missing, Effect.late, Effect.ignored)
"""Effects that a user wants to know before starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A command with the effects of its keys."""

    command: Command
    found: tuple[Found, ...]

    def of(self, effect: Effect) -> list[str]:
        return list(dict.fromkeys(one.key for one in self.found if one.effect is effect))


def check(given: str) -> list[Checked]:
    """Check the commands in a file or text.

    Raises:
        ConfigError: there is none, or verl is not installed.
    """
    checked: list[Checked] = []
    for one in read(given):
        found = examine(one.overrides, one.config_name, one.own)
        if one.lacks:  # what is not here may have the missing keys
            found = [each for each in found if each.effect is not Effect.missing]
        checked.append(Checked(command=one, found=tuple(found)))
    return checked


def as_json(checked: Sequence[Checked]) -> dict[str, Any]:
    """Return the effects of all commands in the fixed form."""
    lists = {
        name: list(dict.fromkeys(key for one in checked for key in one.of(Effect(name))))
        for name in ("refused", "ignored", "late")
    }
    write = {f.key: f.write for one in checked for f in one.found if f.effect in FAULTS}
    return {"verl": tree.version(), "entry": checked[-1].command.entry, **lists, "write": write}


def is_faulty(checked: Sequence[Checked]) -> bool:
    return any(found.effect in FAULTS for one in checked for found in one.found)


def as_text(checked: Sequence[Checked]) -> Iterator[str]:
    """Yield lines about each command: keys that are not simply taken, and what to write instead."""
    if tree.version() != checked_for():
        known = f"keys that nobody reads were checked for {checked_for()}"
        yield f"verl {tree.version()} is installed; {known}"
    for one in checked:
        counts = {effect: len(one.of(effect)) for effect in Effect}
        shown = ", ".join(f"{count} {effect}" for effect, count in counts.items() if count)
        yield f"{one.command.entry}, {one.command.config_name}, verl {tree.version()}: {shown}"
        if one.command.entry != MAIN_PPO:
            yield f"  the keys are compared with those of {MAIN_PPO}"
        for name in one.command.lacks:
            yield f"  {name} is not here: its keys are not checked, nor reported as missing"
        for effect in (*FAULTS, Effect.warned, Effect.off):
            for found in (found for found in one.found if found.effect is effect):
                why = f": {found.why}" if found.why else ""
                yield f"{effect:<8} {found.given or found.key}{why}"
                if effect in FAULTS and found.write:
                    other = found.here not in ("", found.write)
                    here = f"; our recipes: {_line(found.here)}" if other else ""
                    yield f"         → {_line(found.write)}{here}"


def _line(line: str) -> str:
    return line if line == LEAVE_OUT else f"`{line}`"
