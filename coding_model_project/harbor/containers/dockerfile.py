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
from coding_model_project.harbor.format.task_config import EnvironmentConfig

WITH_DOCKER = "run the task in a container: harbor grade --environment docker"
"""Remedy for tasks that need a container engine."""

WITH_HARBOR = "run the task with Harbor itself: harbor run -e docker"
"""Remedy for tasks that no environment of this project supports."""

_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_HEREDOC = re.compile(r"<<-?([\"']?)(\w+)\1")


class ImageError(HarborError):
    """A task's environment that cannot be built here. The message names file, line and remedy."""

    harbor_name = "SandboxBuildFailedError"


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
        ImageError: it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: {error}") from error
    found: list[Instruction] = []
    at = 0
    while at < len(lines):
        first, text = at, ""
        while at < len(lines):
            line = lines[at]
            at += 1
            if line.lstrip().startswith("#") or (text and not line.strip()):
                continue
            text += line.rstrip()
            if not text.endswith("\\"):
                break
            text = text[:-1] + " "
        if not text.strip():
            continue
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
    rest, options = rest.strip(), {}
    while (match := re.match(r"--([\w-]+)(?:=(\S+))?\s*", rest)) is not None:
        options[match[1]] = match[2] or ""
        rest = rest[match.end() :]
    return Instruction(where=where, name=name.upper(), text=rest, options=options, heredoc=heredoc)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; unset variables are empty."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        found = variables.get(match[1] or match[4], "")
        if match[2] == "-":
            return found or match[3]
        if match[2] == "+":
            return match[3] if found else ""
        return found

    return _VARIABLE.sub(value, text)


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
