"""A Harbor task: a folder with an instruction, an environment, a verifier and a reference solution.

instruction.md  task.toml
environment/    Dockerfile or docker-compose.yaml, and the files that they copy
tests/          test.sh, copied over /tests and run when the agent is done
solution/       solve.sh, copied over /solution by the oracle agent
steps/NAME/     instruction.md, tests/, solution/, workdir/ of a task in several steps
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.failures import InvalidTask, MissingVariable
from coding_model_project.harbor.format.task_config import TaskConfig, TaskOS, parse_config
from coding_model_project.harbor.format.task_files import Patterns, TaskFiles
from coding_model_project.harbor.step import (
    IMAGE_FILES,
    INSTRUCTION_FILE,
    Step,
    has_image,
    read_step,
)

__all__ = [
    "Step",
    "Task",
    "check_env",
    "load_task",
    "passed_variables",
    "resolve_env",
    "resolve_verifier_env",
    "withheld",
]

CONFIG_FILE = "task.toml"
RANGE_KEY = "reward_range"

_HASHED = (CONFIG_FILE, INSTRUCTION_FILE, "README.md", "trajectory.json")
_NOT_HASHED = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
"""Patterns of files to leave out of the hash, unless the task has its own .gitignore."""

_VARIABLE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task that Harbor accepts."""

    path: Path
    """The task's folder, resolved."""
    name: str
    """[task] name, else the folder's name."""
    label: str
    """The folder's name, with parent folders if several tasks share it."""
    source: str
    """The name of the task's data set; default: the parent folder."""
    config: TaskConfig
    steps: tuple[Step, ...]
    files: TaskFiles
    warnings: tuple[str, ...] = ()
    """Harmless oddities: unknown and deprecated keys."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """This machine's variables for the task's `${NAME}`, which the user named (`passed_variables`)."""

    @property
    def instruction(self) -> str:
        """The instruction without canary lines; that of the first step if the task has steps."""
        return self.steps[0].instruction

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The range of the main reward, if `[metadata] reward_range` declares one.

        This project's own key: Harbor keeps metadata without interpreting it.
        """
        return _range(self.config.metadata.get(RANGE_KEY))

    @property
    def environment_dir(self) -> Path:
        return self.path / "environment"

    @property
    def has_solution(self) -> bool:
        """True if the oracle can run in every step."""
        return all((step.solution / "solve.sh").is_file() for step in self.steps)

    @property
    def has_steps(self) -> bool:
        return self.steps[0].name is not None

    def digest(self) -> str:
        """Return the hash of its content, as Harbor records it: of all files' names and hashes.

        A .gitignore that cannot be matched (`Patterns`) leaves nothing out.
        """
        ignore, ignored = self.path / ".gitignore", Patterns(_NOT_HASHED)
        if ignore.exists():
            try:
                ignored = Patterns(self.files.text(ignore).splitlines())
            except ValueError:
                ignored = Patterns(())
        found = {Path(name) for name in _HASHED}
        for name in ("environment", "tests", "solution", "steps"):
            found |= {Path(name, inner) for inner in self.files.selected(self.path / name)}
        digest = hashlib.sha256()
        for name in sorted(map(str, found)):
            if (self.path / name).is_file() and not ignored.decide(name):
                content = hashlib.sha256((self.path / name).read_bytes()).hexdigest()
                digest.update(f"{name}\0{content}\n".encode())
        return digest.hexdigest()


def load_task(path: Path | str) -> Task:
    """Read a task's folder.

    Raises:
        InvalidTask: it is not a task, or Harbor would reject it; names the folder and the file or key.
    """
    root = Path(path).resolve()
    files = TaskFiles(root)
    try:
        config, warnings = parse_config(files.text(root / CONFIG_FILE))
        if config.environment.os is not TaskOS.linux:
            raise ValueError(f"environment.os={config.environment.os}: only linux is supported")
        _check_folders(files, config)
        steps = tuple(read_step(files, config, step) for step in config.steps or (None,))
    except (InvalidTask, ValueError, OSError, RuntimeError) as error:
        raise InvalidTask(f"{path}: {_reason(error)}") from error
    declared = config.metadata.get(RANGE_KEY)
    if declared is not None and _range(declared) is None:
        warnings = (*warnings, f"ignored metadata.{RANGE_KEY}: expected [low, high]")
    name = config.task.name if config.task else root.name
    return Task(
        path=root,
        name=name,
        label=root.name,
        source=root.parent.name,
        config=config,
        steps=steps,
        files=files,
        warnings=warnings,
    )


def passed_variables(names: Iterable[str], option: str) -> dict[str, str]:
    """Return this machine's variables that the user lets tasks have.

    Args:
        option: the option or key with the names, for the message.

    Raises:
        ConfigError: one is not set.
    """
    for name in names:
        if name not in os.environ:
            raise ConfigError(f"{option}={name}: the variable is not set here; set it, or drop it")
    return {name: os.environ[name] for name in names}


def check_env(
    task: Task, *, oracle: bool = False, verifier_env: Mapping[str, str] | None = None
) -> None:
    """Raise if a task needs a variable of this machine that the user does not pass.

    Args:
        verifier_env: the user's variables for verifiers, which fill in the task's `${NAME}` too.

    Raises:
        MissingVariable: it does; the message names task and section.
    """
    for section, env in _sections(task, oracle=oracle).items():
        try:
            if section == "verifier":
                resolve_verifier_env(env, task.environ, verifier_env or {})
            else:
                resolve_env(env, task.environ)
        except MissingVariable as error:
            raise MissingVariable(f"{task.path}: [{section}.env] {error}") from error


def resolve_verifier_env(
    env: Mapping[str, str], environ: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return a verifier's variables: the task's, which `given` may fill in, then `given` itself.

    Raises:
        MissingVariable: as `resolve_env`.
    """
    own = {name: value for name, value in env.items() if name not in given}
    return {**resolve_env(own, {**environ, **given}), **given}


def withheld(task: Task, filled: Container[str] = ()) -> tuple[str, ...]:
    """Return a note for each variable of this machine that a task asks for and does not get.

    Args:
        filled: names that the user fills in otherwise.
    """
    envs = [*_sections(task, oracle=True).values(), *(step.verifier.env for step in task.steps)]
    matches = (_VARIABLE.fullmatch(value) for env in envs for value in env.values())
    asked = dict.fromkeys(match[1] for match in matches if match)
    return tuple(
        f"the task asks for this machine's {name}, and gets its own default; to pass it: "
        f"--pass-env {name} (coding.harbor.pass_env)"
        for name in asked
        if name in os.environ and name not in task.environ and name not in filled
    )


def _sections(task: Task, *, oracle: bool) -> dict[str, Mapping[str, str]]:
    config = task.config
    sections = {"environment": config.environment.env, "verifier": config.verifier.env}
    return {**sections, "solution": config.solution.env} if oracle else sections


def resolve_env(env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Replace values that are exactly `${VAR}` or `${VAR:-default}`; other values stay as they are.

    Args:
        environ: variables to take values from, such as `Task.environ`; an empty one counts as set.

    Raises:
        MissingVariable: a variable is missing and has no default; the message names it and the key.
    """
    resolved = {}
    for key, value in env.items():
        match = _VARIABLE.fullmatch(value)
        if match is None:
            resolved[key] = value
            continue
        variable, default = match.groups()
        if variable in environ:
            resolved[key] = environ[variable]
        elif default is not None:
            resolved[key] = default
        else:
            raise MissingVariable(
                f"{key} asks for this machine's variable {variable}; set it, and pass it with "
                f"--pass-env {variable} (coding.harbor.pass_env)"
            )
    return resolved


def _range(declared: Any) -> tuple[float, float] | None:
    match declared:
        case [int() | float() as low, int() | float() as high] if low <= high:
            return float(low), float(high)
    return None


def _check_folders(files: TaskFiles, config: TaskConfig) -> None:
    """Raise if a task has no environment, or links that lead out of it.

    Raises:
        ValueError: it does.
    """
    environment = files.root / "environment"
    if not config.environment.docker_image and not has_image(environment):
        raise ValueError(
            f"environment/ has neither {' nor '.join(IMAGE_FILES)}, and environment.docker_image "
            "is not set"
        )
    steps = (f"steps/{step.name}" for step in config.steps or ())
    for name in ("environment", "tests", "solution", *steps):
        files.check_links(files.root / name)


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidTask):
        return f"{CONFIG_FILE}: {error}"
    return str(error)
