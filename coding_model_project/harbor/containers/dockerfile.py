"""Dockerfiles, as far as they can be followed without a container engine.

Understood: comments, continued lines, here-documents of RUN, variables of ARG and ENV, and the
instructions of `environment.image`. Whatever is not gives one error that names instruction and line.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import HarborError
from coding_model_project.harbor.format.task_config import EnvironmentConfig

WITH_DOCKER = "run the task in a container: harbor grade --environment docker"
"""The way out where a container engine is needed."""

WITH_HARBOR = "run the task by Harbor itself: harbor run -e docker"
"""The way out of what no environment here has."""

_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_HEREDOC = re.compile(r"<<-?([\"']?)(\w+)\1")


class ImageError(HarborError):
    """An environment cannot be made here from what its task says. Names file, line and the way out."""

    harbor_name = "SandboxBuildFailedError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction, its continued lines joined."""

    where: str
    """File and line."""
    name: str
    """In capitals."""
    text: str
    """What follows the name and its options."""
    options: Mapping[str, str]
    heredoc: str | None = None
    """The lines of a here-document."""

    def words(self) -> list[str]:
        """The text as a JSON list if it is one, else split as a shell does.

        Raises:
            ImageError: it is neither.
        """
        as_list = self.exec_form()
        if as_list is not None:
            return as_list
        try:
            return shlex.split(self.text)
        except ValueError as error:
            raise self.error(str(error)) from error

    def exec_form(self) -> list[str] | None:
        """The words of a JSON list; None if the text is none."""
        if not self.text.startswith("["):
            return None
        try:
            words = json.loads(self.text)
        except ValueError:
            return None
        return words if all(isinstance(word, str) for word in words) else None

    def error(self, problem: str) -> ImageError:
        """What cannot be done about this instruction, and the way out."""
        return ImageError(f"{self.where}: {self.name}: {problem}; {WITH_DOCKER}")


def refuse_devices(config: EnvironmentConfig) -> None:
    """Raises:
    ImageError: the task asks for accelerators.
    """
    if config.gpus or config.tpu:
        raise ImageError(f"environment.gpus: environments here have no accelerators; {WITH_HARBOR}")


def refuse_services(folder: Path) -> None:
    """Raises:
    ImageError: the task's environment is made of several containers.
    """
    compose = folder / "docker-compose.yaml"
    if compose.exists():
        raise ImageError(f"{compose}: environments here are of one service; {WITH_HARBOR}")


def parse(path: Path) -> tuple[Instruction, ...]:
    """The instructions of a file.

    Raises:
        ImageError: it cannot be read, or a line is none.
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
    """Replace `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; what is not set is empty."""

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
    """What an ENV or LABEL sets: `NAME=value …`, or the older `NAME value`.

    Raises:
        ImageError: it is neither.
    """
    first, _, rest = instruction.text.partition(" ")
    if "=" not in first:
        return {first: expand(rest.strip(), variables)}
    pairs = (word.partition("=") for word in instruction.words())
    return {name: expand(value, variables) for name, _, value in pairs}
