"""The writer of post-training tasks: a benchmark, a base model and hours as a folder in Harbor's format.

instruction.md        the agent's instruction
task.toml             GPU, memory, storage, time-outs; the clock and the collected files
environment/          Dockerfile, evaluate.py, timer.sh, templates/, task_context/, package.tar.gz
tests/                Dockerfile of the verifier's own environment, test.sh, the test problems, …
solution/             for the tiny model only: a PyTorch script

Most of its texts are files of texts/.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor.format.task import RANGE_KEY, Task, write_task
from coding_model_project.harbor.format.task_config import (
    AgentConfig,
    Artifact,
    Collect,
    EnvironmentConfig,
    Healthcheck,
    Package,
    TaskConfig,
    VerifierConfig,
    VerifierMode,
)
from coding_model_project.harbor.posttrain.benchmarks import (
    FOLDER,
    TABLES,
    TINY,
    BaseModel,
    Benchmark,
    Problems,
)
from coding_model_project.harbor.posttrain.language_judge import KEY, MODEL, URL
from coding_model_project.harbor.posttrain.submission import Unfit, hashes_of, open_model
from coding_model_project.harbor.rooms.image import PACKAGES_LABEL
from coding_model_project.isolation.carried_source import PACKAGE
from coding_model_project.types import Problem

WORKSPACE, BASE, ARTIFACTS = "/app", "/models/base", "/logs/artifacts"
TIMER = f"{ARTIFACTS}/timer"

START_TIMER = f"mkdir -p {TIMER} && (test -s {TIMER}/started_at || date +%s > {TIMER}/started_at)"
"""Health check: runs when the environment is up, just before the agent."""
STOP_TIMER = f"mkdir -p {TIMER} && date +%s > {TIMER}/ended_at"
"""Runs after the agent has ended."""

_NEEDED = """
torch transformers safetensors numpy scipy pyarrow orjson omegaconf hydra-core pydantic pyyaml psutil
httpx huggingface_hub jinja2 rich stamina typer tomli-w fsspec duckdb math-verify emoji langdetect
nltk syllapy
"""


MAX_HOURS = 1_000.0
ORACLE_STEPS = 240
_VERIFIER_S, _BUILD_S = 18_000.0, 3_600.0
_LEFT_OUT = "cli configs doctor handover integrations launch studies synthetic verl_ext"
"""Folders that neither verifier nor agent needs. `synthetic` could also generate the test problems."""
_SUFFIXES = (".py", ".c", ".yaml", ".json", ".html", ".css", ".js", ".jinja")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A task to write."""

    benchmark: Benchmark
    model: BaseModel
    hours: float
    base: Path | None
    """A base model to embed in the task; None downloads it during the image build."""
    siblings: Mapping[str, Path] = field(default_factory=dict)
    """Folders of other models by name; a submission with their weights is rejected."""
    oracle_steps: int = ORACLE_STEPS

    @property
    def max_tokens(self) -> int:
        """Most tokens of an answer."""
        return min(self.benchmark.max_tokens, self.model.longest_answer)

    @property
    def name(self) -> str:
        """The name of the task's folder."""
        return f"posttrainbench-{self.benchmark.key}-{self.model.key}"


def check_hours(hours: float) -> None:
    """Raise ConfigError if `hours` is not positive or exceeds `MAX_HOURS`."""
    if not (math.isfinite(hours) and 0 < hours <= MAX_HOURS):
        raise ConfigError(f"--num-hours={hours:g}: must be above 0 and at most {MAX_HOURS:g}")


def write(wanted: Wanted, problems: Problems, out: Path) -> Task:
    """Write a task below a folder. The same input gives the same bytes.

    Returns:
        The task, read back.

    Raises:
        ConfigError: the task's folder exists, or a model's folder holds more than data.
    """
    settings = _json(_settings(wanted))
    given = {"train.jsonl": problems.train, "validation.jsonl": problems.validation}
    with _fit("--sibling"):
        siblings = {name: hashes_of(open_model(path)) for name, path in wanted.siblings.items()}
    templates = {name: one["file"] for name, one in TABLES["templates"].items()}
    keys = ", ".join(f"`{key}`" for key in json.loads(problem_line(problems.test[0])))
    render = _renderer(
        model=wanted.model,
        title=wanted.benchmark.title,
        judged=wanted.benchmark.judged,
        max_tokens=wanted.max_tokens,
        base=BASE,
        workspace=WORKSPACE,
        timer=TIMER,
        hours=f"{wanted.hours:g}",
        seconds=round(wanted.hours * 3600),
        steps=wanted.oracle_steps,
        context=_listed(wanted, problems),
        has_validation=bool(problems.validation),
        missing=problems.missing,
        keys=keys,
        embeds_base=wanted.base is not None,
        needed=" ".join(_NEEDED.split()),
        label=PACKAGES_LABEL,
    )
    content: dict[str, str | bytes] = {
        "instruction.md": render("instruction.md"),
        "environment/Dockerfile": render("Dockerfile.jinja", package_at="/opt/package"),
        "environment/evaluate.py": _text("evaluate.jinja"),
        "environment/timer.sh": render("timer.sh"),
        "environment/package.tar.gz": _package(),
        **{f"environment/templates/{k}": _text(file) for k, file in templates.items()},
        **{f"environment/task_context/{k}": _lines(v) for k, v in given.items() if v},
        "environment/task_context/settings.json": settings,
        "environment/task_context/README.md": render("README.md"),
        "tests/Dockerfile": render("Dockerfile.jinja", package_at="/tests/package", verifies=True),
        "tests/test.sh": _text("test.sh"),
        "tests/package.tar.gz": _package(),
        "tests/settings.json": settings,
        "tests/problems.jsonl": _lines(problems.test),
        "tests/allowed.jsonl": _lines((*problems.train, *problems.validation)),
        "tests/siblings.json": _json(siblings),
        **{f"tests/templates/{k}": _text(file) for k, file in templates.items()},
    }
    if wanted.base is not None:
        with _fit(f"--base={wanted.base}"):
            files_of_base = sorted(open_model(wanted.base).folder.iterdir())
        for path in files_of_base:
            if path.is_file():
                content[f"environment/base/{path.name}"] = path.read_bytes()
                content[f"tests/base/{path.name}"] = path.read_bytes()
    if wanted.model.key == TINY and wanted.benchmark.key == "tinycode":
        content["solution/solve.sh"] = render("solve.sh")
        content["solution/train.py"] = FOLDER.joinpath("oracle.py").read_text("utf-8")
    return write_task(out / wanted.name, _config(wanted), content)


def _text(name: str) -> str:
    """Return a file of the folder `texts`."""
    return FOLDER.joinpath("texts", name).read_text("utf-8")


def _renderer(**fields: Any) -> Callable[..., str]:
    """Return a function of a text's name, and more fields, that fills in the fields of a text."""
    jinja = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return lambda name, **more: jinja.from_string(_text(name)).render(**fields, **more)


def _config(wanted: Wanted) -> TaskConfig:
    model = wanted.model
    gpu: dict[str, Any] = {"gpus": model.gpus, "gpu_types": ("H100",)} if model.gpus else {}
    environment = EnvironmentConfig(
        build_timeout_sec=_BUILD_S,
        cpus=model.cpus,
        memory_mb=model.memory_mb,
        storage_mb=model.storage_mb,
        **gpu,
    )
    return TaskConfig(
        task=Package(
            name=f"posttrain/{wanted.benchmark.key}-{model.key}",
            description=f"Post-train {model.name} for {wanted.benchmark.title}",
            keywords=("post-training", "fine-tuning"),
        ),
        metadata={
            "category": "post-training",
            "benchmark": wanted.benchmark.key,
            "model": model.key,
            "hours": wanted.hours,
            "split": "test",
            RANGE_KEY: [0.0, 1.0],
        },
        artifacts=(Artifact(source=WORKSPACE),),
        agent=AgentConfig(timeout_sec=wanted.hours * 3600),
        environment=replace(
            environment,
            healthcheck=Healthcheck(command=START_TIMER, interval_sec=1.0, start_interval_sec=1.0),
        ),
        verifier=VerifierConfig(
            timeout_sec=_VERIFIER_S,
            environment_mode=VerifierMode.separate,
            environment=environment,
            env={URL: f"${{{URL}:-}}", MODEL: f"${{{MODEL}:-}}", KEY: f"${{{KEY}:-}}"},
            collect=(Collect(command=STOP_TIMER),),
        ),
    )


def _settings(wanted: Wanted) -> dict[str, Any]:
    style = PromptStyle.bare if wanted.model.key == TINY else PromptStyle.fenced
    return {
        "benchmark": wanted.benchmark.key,
        "title": wanted.benchmark.title,
        "model": wanted.model.key,
        "model_name": wanted.model.name,
        "hours": wanted.hours,
        "workspace": WORKSPACE,
        "base": BASE,
        "artifacts": ARTIFACTS,
        "left": [WORKSPACE],
        "template": wanted.model.template,
        "stop": TABLES["templates"][wanted.model.template]["stop"],
        "asked": {
            "prompt": str(style),
            "max_tokens": wanted.max_tokens,
            "engine": wanted.model.engine,
        },
    }


def _listed(wanted: Wanted, problems: Problems) -> str:
    parts = []
    if problems.train:
        parts.append(f"`train.jsonl`, {len(problems.train)} problems that you may train on")
    if problems.validation:
        parts.append(
            f"`validation.jsonl`, {len(problems.validation)} problems to compare your models by"
        )
    return (
        "; ".join(parts) + "." if parts else f"no problems; bring your own {wanted.benchmark.key}."
    )


@contextmanager
def _fit(option: str) -> Iterator[None]:
    """Raise ConfigError if an option's folder does not hold a model, or holds more than data."""
    try:
        yield
    except Unfit as error:
        raise ConfigError(f"{option}: {error}") from error


def _lines(problems: tuple[Problem, ...]) -> bytes:
    return b"".join(map(problem_line, problems))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


@lru_cache(maxsize=1)
def _package() -> bytes:
    """Return the package as a .tar.gz. The same sources give the same bytes."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, path in _sources():
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"{PACKAGE}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def _sources() -> Iterator[tuple[str, Path]]:
    root = Path(str(files(PACKAGE)))
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        left_out = name.split("/")[0] in _LEFT_OUT.split()
        if path.is_file() and path.suffix in _SUFFIXES and not left_out:
            yield name, path
