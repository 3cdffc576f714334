"""A Harbor task: a folder with an instruction, an environment, a verifier and a reference solution.

instruction.md  task.toml
environment/    Dockerfile or docker-compose.yaml, and the files that they copy
tests/          test.sh, copied over /tests and run when the agent is done
solution/       solve.sh, copied over /solution by the oracle agent
steps/NAME/     instruction.md, tests/, solution/, workdir/ of a task in several steps
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from coding_model_project.contained import below
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.environment.tree import of_folder
from coding_model_project.harbor.failures import InvalidTask, MissingVariable
from coding_model_project.harbor.format.task_config import (
    AgentConfig,
    Artifact,
    EnvironmentConfig,
    Healthcheck,
    StepConfig,
    TaskConfig,
    VerifierConfig,
    VerifierMode,
    parse_config,
    toml,
)
from coding_model_project.harbor.format.task_files import TaskFiles

CONFIG_FILE, INSTRUCTION_FILE = "task.toml", "instruction.md"
IMAGE_FILES = ("Dockerfile", "docker-compose.yaml")
RANGE_KEY = "reward_range"
_PARTS = (CONFIG_FILE, INSTRUCTION_FILE, "environment", "tests", "solution", "steps")

_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
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
        """Return the hash of its files."""

        def is_part(name: str) -> bool:
            return name.split("/")[0] in _PARTS and not self.files.ignored(self.path / name)

        return of_folder(self.path, is_part).digest()


def load_task(path: Path | str) -> Task:
    """Read a task's folder.

    Raises:
        InvalidTask: it is not a task, or Harbor would reject it; names the folder and the file or key.
    """
    root = Path(path).resolve()
    files = TaskFiles(root)
    try:
        config, warnings = parse_config(files.text(root / CONFIG_FILE))
        _check_folders(files, config)
        steps = tuple(read_step(files, config, step) for step in config.steps or (None,))
    except (InvalidTask, ValueError, OSError, RuntimeError) as error:
        key = f"{CONFIG_FILE}: " if isinstance(error, InvalidTask) else ""
        raise InvalidTask(f"{path}: {key}{error}") from error
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of agent and verifier. A task without [[steps]] is one step without a name.

    The task's settings fill in whatever the step leaves out.
    """

    name: str | None
    instruction: str
    agent: AgentConfig
    verifier: VerifierConfig
    """`env` merges the task's and the step's variables; `mode` selects where the verifier runs."""
    verifier_environment: EnvironmentConfig | None
    """Environment of a separate verifier; None if it runs in the agent's environment."""
    verifier_image: Path | None
    """Build folder of a separate verifier's environment: tests/ if it has its own image, else
    environment/."""
    tests: tuple[Path, ...]
    """Folders copied over /tests in this order (`Task.files.tree`); none if the image has the tests."""
    solution: Path
    """Folder that the oracle copies over /solution; it, or its solve.sh, may not exist."""
    workdir: Path | None = None
    """Files copied over the working directory before the agent starts; their setup.sh then runs."""
    min_reward: float | Mapping[str, float] | None = None
    healthcheck: Healthcheck | None = None
    """Health check after the step's set-up, in addition to the environment's own."""
    artifacts: tuple[Artifact, ...] = ()


def read_step(files: TaskFiles, config: TaskConfig, step: StepConfig | None) -> Step:
    """Read a step, with the task's settings as defaults.

    Raises:
        ValueError, OSError: its instruction or its test script is missing or ignored.
    """
    root = files.root
    folder = root if step is None else root / "steps" / step.name
    instruction = strip_canary(files.text(folder / INSTRUCTION_FILE))
    given = step or StepConfig(name="all", agent=config.agent, verifier=config.verifier)
    test_folders = tuple(dict.fromkeys((folder / "tests", root / "tests")))
    apart = given.verifier.mode or config.verifier.mode or VerifierMode.shared
    environment, image, bundled = None, None, False
    if apart is VerifierMode.separate:
        environment, image, bundled = _verifier_environment(config, given, test_folders, root)
    if not bundled:
        _check_test_script(files, test_folders)
    solution, workdir = folder / "solution", folder / "workdir"
    timeout_sec = given.agent.timeout_sec
    if timeout_sec is None:
        timeout_sec = config.agent.timeout_sec
    agent = replace(given.agent, timeout_sec=timeout_sec)
    verifier = replace(given.verifier, env={**config.verifier.env, **given.verifier.env})
    return Step(
        name=None if step is None else step.name,
        instruction=instruction,
        agent=_filled(agent, config.agent, config.environment),
        verifier=_filled(verifier, config.verifier, environment or config.environment),
        verifier_environment=environment,
        verifier_image=image,
        tests=() if bundled else tuple(one for one in reversed(test_folders) if one.exists()),
        solution=solution if solution.exists() else root / "solution",
        workdir=workdir if step is not None and workdir.exists() else None,
        min_reward=given.min_reward,
        healthcheck=given.healthcheck,
        artifacts=(*config.artifacts, *given.artifacts),
    )


_Section = TypeVar("_Section", AgentConfig, VerifierConfig)


def _filled(given: _Section, default: _Section, environment: EnvironmentConfig) -> _Section:
    """Return a step's section with the task's user, and the network of the first level that sets one."""
    levels = (given, default, environment)
    network = next(level for level in levels if level.network_mode is not None)
    return replace(
        given,
        user=default.user if given.user is None else given.user,
        network_mode=network.network_mode,
        allowed_hosts=network.allowed_hosts or None,
    )


def _verifier_environment(
    config: TaskConfig, step: StepConfig, test_folders: tuple[Path, ...], root: Path
) -> tuple[EnvironmentConfig, Path, bool]:
    """Return a separate verifier's environment, its image's folder, and whether that has the tests."""
    settings = step.verifier.environment or config.verifier.environment or config.environment
    levels = (step.verifier.environment, config.verifier.environment)[-len(test_folders) :]
    for level, folder in zip(levels, test_folders, strict=True):
        image = level.docker_image if level is not None else None
        if image or has_image(folder):
            return replace(settings, docker_image=image), folder, True
    image = config.environment.docker_image
    return replace(settings, docker_image=image), root / "environment", False


def _check_test_script(files: TaskFiles, folders: tuple[Path, ...]) -> None:
    script = next((f / "test.sh" for f in folders if (f / "test.sh").exists()), None)
    if script is None:
        raise ValueError(f"{(folders[0] / 'test.sh').relative_to(files.root)} is missing")
    if files.ignored(script):
        raise ValueError(f"{script.relative_to(files.root)} is excluded by .harborignore")


def has_image(folder: Path) -> bool:
    """Return whether a folder defines an image."""
    return any(map(Path.is_file, map(folder.joinpath, IMAGE_FILES)))


def strip_canary(text: str) -> str:
    """Return an instruction without its leading canary comments and blank lines."""
    lines = text.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        del lines[0]
    while lines and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def check_new(out: Path) -> None:
    """Raise ConfigError if a folder for tasks or trials is not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out: {out} is not empty; choose a new folder")


def write_task(folder: Path, config: TaskConfig, files: Mapping[str, str | bytes]) -> Task:
    """Write a task's folder atomically.

    Args:
        files: contents by path in the folder, such as "instruction.md" and "tests/test.sh", written byte
            for byte; files that end in .sh become executable. `config` becomes task.toml.

    Returns:
        The task, read back from the folder.

    Raises:
        ConfigError: the folder exists.
        UnsafeNameError: a path leads out of it.
        InvalidTask: the result is not a task, for example without tests/test.sh; nothing is written.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; remove it or choose another folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for name, content in {**files, CONFIG_FILE: toml(config)}.items():
            _write(below(partial, name), content)
        load_task(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return load_task(folder)


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755 if path.suffix == ".sh" else 0o644)
