"""Steps of a task, each with everything that running it needs. A task without [[steps]] has one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coding_model_project.harbor.format.task_config import (
    AgentConfig,
    Artifact,
    EnvironmentConfig,
    Healthcheck,
    StepConfig,
    TaskConfig,
    VerifierConfig,
    VerifierMode,
)
from coding_model_project.harbor.format.task_files import TaskFiles

INSTRUCTION_FILE = "instruction.md"
IMAGE_FILES = ("Dockerfile", "docker-compose.yaml")

_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)


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
    """Folders copied over /tests in this order, limited to their `Task.files.selected`."""
    test_script: Path | None
    """test.sh in one of `tests`; None if the verifier's image contains /tests/test.sh."""
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
    solution, workdir = folder / "solution", folder / "workdir"
    return Step(
        name=None if step is None else step.name,
        instruction=instruction,
        agent=_agent(config, given.agent),
        verifier=_verifier(config, given.verifier, environment or config.environment),
        verifier_environment=environment,
        verifier_image=image,
        tests=() if bundled else tuple(one for one in reversed(test_folders) if one.exists()),
        test_script=None if bundled else _test_script(files, test_folders),
        solution=solution if solution.exists() else root / "solution",
        workdir=workdir if step is not None and workdir.exists() else None,
        min_reward=given.min_reward,
        healthcheck=given.healthcheck,
        artifacts=(*config.artifacts, *given.artifacts),
    )


def _agent(config: TaskConfig, given: AgentConfig) -> AgentConfig:
    timeout_sec = config.agent.timeout_sec if given.timeout_sec is None else given.timeout_sec
    return AgentConfig(
        timeout_sec=timeout_sec,
        user=config.agent.user if given.user is None else given.user,
        **_network(given, config.agent, config.environment),
    )


def _verifier(
    config: TaskConfig, given: VerifierConfig, environment: EnvironmentConfig
) -> VerifierConfig:
    return replace(
        given,
        env={**config.verifier.env, **given.env},
        user=config.verifier.user if given.user is None else given.user,
        **_network(given, config.verifier, environment),
    )


def _network(*levels: AgentConfig | VerifierConfig | EnvironmentConfig) -> dict[str, Any]:
    """Return mode and hosts of the first level that sets a mode."""
    first = next(level for level in levels if level.network_mode is not None)
    return {"network_mode": first.network_mode, "allowed_hosts": first.allowed_hosts or None}


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


def _test_script(files: TaskFiles, folders: tuple[Path, ...]) -> Path:
    script = next((f / "test.sh" for f in folders if (f / "test.sh").exists()), None)
    if script is None:
        raise ValueError(f"{(folders[0] / 'test.sh').relative_to(files.root)} is missing")
    if files.ignored(script):
        raise ValueError(f"{script.relative_to(files.root)} is excluded by .harborignore")
    return script


def has_image(folder: Path) -> bool:
    """Return whether a folder defines an image."""
    return any((folder / name).is_file() for name in IMAGE_FILES)


def strip_canary(text: str) -> str:
    """Return an instruction without its leading canary comments and blank lines."""
    lines = text.split("\n")
    while lines and _CANARY.fullmatch(lines[0].strip()):
        del lines[0]
    while lines and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)
