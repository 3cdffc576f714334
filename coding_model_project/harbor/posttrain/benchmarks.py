"""Parts of post-training tasks: benchmarks, problems that an agent may train on, and base models.

The base models are the original benchmark's, and a tiny one for machines without a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from coding_model_project.data.governance import role
from coding_model_project.data.loaders import find, load
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.types import Problem

FOLDER = files("coding_model_project.harbor.posttrain")

TABLES: Mapping[str, Any] = yaml.safe_load(FOLDER.joinpath("tables.yaml").read_text("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark that models are post-trained for."""

    key: str
    title: str
    test: str
    """The name of the data set that scores are measured on."""
    context: Sequence[str] = ()
    """Names of the agent's data sets; missing ones are left out. Without validation problems, some of
    the training problems become such."""
    max_tokens: int = 4000
    judged: str = "the program of the answer must pass all hidden tests"
    """The rule for judging an answer, in words for the instruction."""


BENCHMARKS = {name: Benchmark(key=name, **row) for name, row in TABLES["benchmarks"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """A benchmark's problems."""

    test: tuple[Problem, ...]
    train: tuple[Problem, ...]
    validation: tuple[Problem, ...]
    missing: tuple[str, ...]
    """Names of the agent's data sets that are missing."""


def benchmark(key: str) -> Benchmark:
    """Return a benchmark by its key.

    Raises:
        ConfigError: there is no such benchmark; the message lists the known ones.
    """
    found = BENCHMARKS.get(key.lower())
    if found is None:
        name = re.sub(r"[^a-z0-9]", "", key.lower())
        needs = next(
            (one for start, one in TABLES["elsewhere"].items() if name.startswith(start)), None
        )
        why = "no such benchmark" if needs is None else f"not supported, since it needs {needs}"
        raise ConfigError(f"--benchmark={key}: {why}; choose one of {', '.join(BENCHMARKS)}")
    return found


_VALIDATION_SHARE, _MOST_VALIDATION = 10, 200
"""Every tenth training problem, and at most 200, become validation problems if there are none."""


def check_data_files(paths: Mapping[str, str], asked: Benchmark) -> None:
    """Raise if a file is given for a data set that a benchmark does not read.

    Raises:
        ConfigError: it is; the message lists the names that are read.
    """
    read = (asked.test, *asked.context)
    known = dict.fromkeys([*read, *filter(None, map(_whole_set, read))])
    for name in paths:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise ConfigError(
                f"--data-file={name}=…: no data set of this name is read"
                f"{f'; did you mean {near[0]}?' if near else ''}; expected one of {', '.join(known)}"
            )


def _whole_set(name: str) -> str | None:
    """Return the set that a split's name is of, if one file has all splits and each row names its own."""
    loader, _ = find(name) or (None, None)
    if loader is None or any(part.split for part in loader.published.parts):
        return None
    return loader.published.name if loader.published.parts else None


def _path(paths: Mapping[str, str], name: str) -> str | None:
    return paths.get(name) or paths.get(_whole_set(name) or "")


def load_problems(
    asked: Benchmark,
    *,
    data_dir: Path | None,
    paths: Mapping[str, str],
    limit: int | None,
) -> Problems:
    """Read a benchmark's test problems and the agent's problems.

    Args:
        paths: files of data sets, by the data set's name.
        limit: most test problems, from the first on.

    Raises:
        ConfigError, DataError, DownloadError: the test problems are missing, or a file is damaged.
    """
    test = load(asked.test, path=_path(paths, asked.test), data_dir=data_dir).problems[:limit]
    if not test:
        raise ConfigError(f"--benchmark={asked.key}: {asked.test} has no usable problem")
    train: list[Problem] = []
    validation: list[Problem] = []
    missing: list[str] = []
    for name in asked.context:
        try:
            found = load(name, path=_path(paths, name), data_dir=data_dir).problems
        except (ConfigError, DownloadError):
            if _path(paths, name):
                raise
            missing.append(name)
            continue
        for problem in found:
            part = role(problem.id.split("/")[0], problem.split)
            if part.may_train:
                train.append(problem)
            elif str(part) == "validation":
                validation.append(problem)
    if not validation and len(train) > 1:
        validation = train[::_VALIDATION_SHARE][:_MOST_VALIDATION]
        held_out = {problem.id for problem in validation}
        train = [problem for problem in train if problem.id not in held_out]
    return Problems(
        test=test, train=tuple(train), validation=tuple(validation), missing=tuple(missing)
    )


TINY = "tiny"
DEFAULT_TINY = Path("data/tinycode/base")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A base model and what a task needs to train and evaluate it."""

    key: str
    hub: str | None = None
    """Its name on the hub; None for the tiny model, whose folder is part of the task."""
    template: str
    """Its chat template's file, below templates/."""
    engine: str = "vllm"
    """The evaluation's generation back end: `vllm` or `transformers`."""
    gpus: int = 1
    cpus: int = 8
    memory_mb: int = 65_536
    storage_mb: int = 102_400
    longest_answer: int = 1 << 20
    """Most tokens of an answer, if the benchmark allows more."""

    @property
    def name(self) -> str:
        """The model's name in the agent's instruction."""
        return self.hub or "the tiny model"


BASE_MODELS = {name: BaseModel(key=name, **row) for name, row in TABLES["base_models"].items()}


def base_model(key: str) -> BaseModel:
    """Return a model by its key.

    Raises:
        ConfigError: there is no such model; the message lists the known ones.
    """
    found = BASE_MODELS.get(key.lower())
    if found is None:
        raise ConfigError(f"--model={key}: no such model; choose one of {', '.join(BASE_MODELS)}")
    return found


def folder_of(model: BaseModel, given: Path | None) -> Path | None:
    """Return the folder of a base model to embed in the task; None if the image downloads it.

    Raises:
        ConfigError: it is missing, or does not hold a model.
    """
    if model.hub is not None and given is None:
        return None
    folder = given or DEFAULT_TINY
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise ConfigError(
            f"--base={folder}: no base model (config.json and safetensors files); make the tiny one with "
            "`data prepare tinycode --base-model`"
        )
    return folder
