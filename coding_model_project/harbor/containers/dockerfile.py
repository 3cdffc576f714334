"""A parser for the part of Dockerfiles that works without a container engine.

Supported: comments, continued lines, here-documents of RUN, variables of ARG and ENV, and the
instructions of `environment.image`. Anything else is an error that names instruction and line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project import strict_json
from coding_model_project.errors import HarborError
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.format.task_config import EnvironmentConfig

WITH_DOCKER = "run the task in a container: harbor grade --environment docker"
"""Remedy for tasks that need a container engine."""

WITH_HARBOR = "run the task with Harbor itself: harbor run -e docker"
"""Remedy for tasks that no environment of this project supports."""

_MAX_BYTES = 1 << 20
_MAX_INSTRUCTIONS = 2_000
MAX_TEXT = 128 << 10
"""Maximum length of a text with variables: the kernel's limit of a program's argument or variable."""

_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^}]{0,4096}))?\}|(\w+))")
_OPTION = re.compile(r"--([\w-]+)(?:=(\S+))?\s*")
_HEREDOC = re.compile(r"<<-?([\"']?)(\w+)\1")


class ImageError(HarborError):
    """A task's environment that cannot be built here. The message names file, line and remedy."""

    harbor_name = "SandboxBuildFailedError"


class TooLong(ValueError):
    """A text that its variables make longer than `MAX_TEXT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction, with its continued lines joined."""

    where: str
    """File and line."""
    name: str
    """Name in capitals."""
    text: str
    """The rest after the name and its options."""
    options: Mapping[str, str]
    heredoc: str | None = None
    """The lines of a here-document."""

    def words(self) -> list[str]:
        """Return the words of a JSON list, or else of the text split as by a shell.

        Raises:
            ImageError: the text is neither.
        """
        as_list = self.exec_form()
        if as_list is not None:
            return as_list
        try:
            return shlex.split(self.text)
        except ValueError as error:
            raise self.error(str(error)) from error

    def exec_form(self) -> list[str] | None:
        """Return the words of a JSON list; None if the text is not one."""
        if not self.text.startswith("["):
            return None
        try:
            words = strict_json.loads(self.text)
        except ValueError:
            return None
        return words if all(isinstance(word, str) for word in words) else None

    def error(self, problem: str) -> ImageError:
        """Return an error about this instruction, with a remedy."""
        return ImageError(f"{self.where}: {self.name}: {problem}; {WITH_DOCKER}")


def refuse_devices(config: EnvironmentConfig) -> None:
    """Raise if a task needs accelerators.

    Raises:
        ImageError: it does.
    """
    if config.gpus or config.tpu:
        raise ImageError(f"environment.gpus: environments here have no accelerators; {WITH_HARBOR}")


def refuse_services(folder: Path) -> None:
    """Raise if a task's environment consists of several containers.

    Raises:
        ImageError: it does.
    """
    compose = folder / "docker-compose.yaml"
    if compose.exists():
        raise ImageError(f"{compose}: environments here have only one service; {WITH_HARBOR}")


def parse(path: Path) -> tuple[Instruction, ...]:
    """Parse a Dockerfile.

    Raises:
        ImageError: it cannot be read, or is longer than any Dockerfile.
    """
    try:
        lines = tree.read(str(path), _MAX_BYTES).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError, tree.TooLarge) as error:
        raise ImageError(f"{path}: {error}") from error
    found: list[Instruction] = []
    at = 0
    while at < len(lines):
        first, parts = at, []
        while at < len(lines):
            line = lines[at].rstrip()
            at += 1
            if line.lstrip().startswith("#") or (parts and not line):
                continue
            parts.append(line.removesuffix("\\") + " " if line.endswith("\\") else line)
            if not line.endswith("\\"):
                break
        text = "".join(parts)
        if not text.strip():
            continue
        if len(found) == _MAX_INSTRUCTIONS:
            raise ImageError(f"{path}: more than {_MAX_INSTRUCTIONS} instructions")
        heredoc = None
        opening = _HEREDOC.search(text)
        if opening is not None and text.split()[0].upper() in ("RUN", "COPY", "ADD"):
            body: list[str] = []
            while at < len(lines) and lines[at].strip() != opening[2]:
                body.append(lines[at])
                at += 1
            at += 1
            heredoc = "\n".join(body) + "\n"
        found.append(_instruction(text.strip(), f"{path}:{first + 1}", heredoc))
    return tuple(found)


def _instruction(text: str, where: str, heredoc: str | None) -> Instruction:
    name, _, rest = text.partition(" ")
    rest, options, at = rest.strip(), {}, 0
    while (match := _OPTION.match(rest, at)) is not None:
        options[match[1]] = match[2] or ""
        at = match.end()
    return Instruction(
        where=where, name=name.upper(), text=rest[at:], options=options, heredoc=heredoc
    )


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; unset variables are empty.

    Raises:
        TooLong: the text or the result is longer than `MAX_TEXT`.
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        found = variables.get(match[1] or match[4], "")
        if match[2] == "-":
            return found or match[3]
        if match[2] == "+":
            return match[3] if found else ""
        return found

    left = MAX_TEXT - len(text)

    def bounded(match: re.Match[str]) -> str:
        nonlocal left
        left -= len(found := value(match))
        if left < 0:
            raise TooLong(f"its variables make it longer than {MAX_TEXT} characters")
        return found

    if left < 0:
        raise TooLong(f"is longer than {MAX_TEXT} characters")
    return _VARIABLE.sub(bounded, text)


def assignments(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the assignments of an ENV or LABEL: `NAME=value …`, or the older `NAME value`.

    Raises:
        ImageError: the text is neither.
    """
    first, _, rest = instruction.text.partition(" ")
    if "=" not in first:
        return {first: expand(rest.strip(), variables)}
    pairs = (word.partition("=") for word in instruction.words())
    return {name: expand(value, variables) for name, _, value in pairs}
