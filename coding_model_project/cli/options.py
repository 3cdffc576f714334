"""Options that several commands share: an option has the same name and help text in every command.

Options of one purpose are a dataclass, which commands take whole (`commands`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_model_project.cli.commands import only, typer_option
from coding_model_project.cli.common import existing_file, warn
from coding_model_project.config_key import option, option_of
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import Cluster, EvaluationConfig
from coding_model_project.sandbox.sandbox_config import SandboxConfig

if TYPE_CHECKING:
    from coding_model_project.data.loaders import Loaded
    from coding_model_project.types import Problem


def _evaluations(name: str) -> Any:
    """Return the option of a key of `coding.evaluation`."""
    return option_of(EvaluationConfig, name)


# ── problems and data sets ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """The problems of a file or of data sets."""

    file: Path | None = option(
        None, "Read problems from this JSON Lines file or URL.", "--problems", metavar="FILE"
    )
    datasets: list[str] = option([], _evaluations("datasets"))
    columns: dict[str, str] = option({}, _evaluations("columns"))
    split: str | None = option(None, _evaluations("split"))
    data_dir: Path | None = option(None, _evaluations("data_dir"))

    def __str__(self) -> str:
        return f"--problems={self.file}" if self.file else f"--dataset={', '.join(self.datasets)}"

    def load(self) -> dict[str, Problem]:
        """Return the problems by id.

        Raises:
            ConfigError: neither or both of file and data sets are given, or a file is missing, damaged or
                empty; names the option, the file and the line.
        """
        from coding_model_project.errors import DataError

        if (self.file is None) == (not self.datasets):
            raise ConfigError("pass exactly one of --problems FILE and --dataset NAME[=PATH]")
        try:
            found = self._read()
        except DataError as error:
            name = "--dataset" if self.file is None else "--problems"
            raise ConfigError(f"{name}: {error}") from error
        if not found and self.file is not None:
            raise ConfigError(f"--problems: {self.file} is empty")
        if not found:
            raise ConfigError(f"{self}: no usable problems")
        by_id = {problem.id: problem for problem in found}
        if len(by_id) < len(found):
            again = next(name for name, n in Counter(one.id for one in found).items() if n > 1)
            raise ConfigError(
                f"{self}: the problem id {again!r} occurs twice; pass one set at a time"
            )
        return by_id

    def _read(self) -> Sequence[Problem]:
        from coding_model_project.data.loaders import given_set, load

        file = self.file and existing_file(self.file, "--problems")
        named = [(file.stem, file)] if file else [given_set(word) for word in self.datasets]
        loaded = [
            load(name, path=path, split=self.split, data_dir=self.data_dir, columns=self.columns)
            for name, path in named
        ]
        for one in loaded:
            if aside := one.aside():
                warn(f"{one.name}: {len(one.problems)} problems, {aside}")
        return [problem for one in loaded for problem in one.problems]


Datasets = Annotated[list[str] | None, typer_option(_evaluations("datasets"))]
OwnProblems = Annotated[Problems, only("file", "datasets", "split", "data_dir")]
"""`Problems` in their own schema or in a data set's, without --map."""

DatasetName = Annotated[
    str,
    typer.Argument(metavar="NAME[=PATH]", help="The data set, by name or from its file or URL."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSet:
    """The part of a data set that a command uses, whose name is its argument."""

    path: str | None = option(None, "Read the data set from this file, folder or URL.")
    columns: dict[str, str] = option({}, _evaluations("columns"))
    split: str | None = option(None, _evaluations("split"))
    data_dir: Path | None = option(None, _evaluations("data_dir"))
    revision: str | None = option(None, "Load this Hub revision. Default: the pinned one.")
    max_tests: int | None = option(None, _evaluations("max_tests"))
    limit: int | None = option(None, _evaluations("limit"))

    def load(self, name: str) -> tuple[str, Loaded]:
        """Return the name and the whole data set of NAME, NAME=PATH, NAME --path PATH or a path."""
        from coding_model_project.data.loaders import given_set, load

        name, path = given_set(name) if self.path is None else (name, self.path)
        return name, load(
            name,
            path=path,
            split=self.split,
            data_dir=self.data_dir,
            revision=self.revision,
            columns=self.columns,
            max_tests=self.max_tests,
        )


Split = Annotated[str | None, typer_option(_evaluations("split"))]
DataDir = Annotated[Path | None, typer_option(_evaluations("data_dir"))]
MapColumns = Annotated[list[str] | None, typer_option(_evaluations("columns"))]
Limit = Annotated[int | None, typer_option(_evaluations("limit"))]
PerProblem = Annotated[
    int, typer.Option("-n", "--per-problem", help="Keep at most N per problem.", min=1)
]
Mutants = Annotated[
    int,
    typer.Option(help="Add N mutants of each gold solution to the known-bad programs.", min=0),
]
Tokenizer = Annotated[str | None, typer.Option(help="Count tokens with this model's tokenizer.")]
Seed = Annotated[int, typer.Option(help="Seed all random choices.")]
StopEarly = Annotated[bool, typer_option(_evaluations("stop_early"), "--stop-early")]

# ── where programs run ────────────────────────────────────────────────────────────────────────────

Judging = Annotated[SandboxConfig, only("workers", "min_tier")]
"""The embedded sandbox of a command that judges."""
JudgingOrServed = Annotated[SandboxConfig, only("workers", "min_tier", "urls")]
"""`Judging`, or SandboxFusion servers."""
Confined = Annotated[SandboxConfig, only("min_tier", "python", "preload")]
"""The embedded sandbox of a command that runs one program at a time."""
Workers = Annotated[int | None, typer_option(option_of(SandboxConfig, "workers"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """Where many programs are judged, and the file that keeps the results."""

    journal: Path | None = option(
        None,
        "Append each result to this file, from which the same command resumes.",
        metavar="FILE",
    )
    cluster: Cluster | None = option(None, _evaluations("cluster"))
    ray_address: str | None = option(None, _evaluations("ray_address"))


# ── Harbor ────────────────────────────────────────────────────────────────────────────────────────

TaskDirs = Annotated[
    list[Path],
    typer.Argument(
        metavar="TASK_DIR", help="Harbor tasks, folders of them, or Parquet files (`harbor pack`)."
    ),
]
Trials = Annotated[
    int | None,
    typer.Option("--workers", help="Run N trials at once. Default: one per CPU core.", min=1),
]
Where = Annotated[
    str,
    typer.Option(
        "--environment",
        metavar="NAME",
        help="Run trials in `rooms`, in containers of `podman` or `docker`, in Harbor's own environments "
        "(`harbor:TYPE`), or in those of `package.module:Factory`, which may be a sandbox factory of the "
        "tinker cookbook. `auto` takes rooms for tasks that need nothing but a system, and containers "
        "for others.",
    ),
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--pass-env",
        metavar="NAME",
        help="Let tasks have this machine's variable NAME, which they ask for by ${NAME}; repeatable.",
    ),
]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option(
        "--benchmark",
        "--benchmarks",
        metavar="NAME[=PATH]",
        help="Use the tasks of this folder, or of the folder with this name in the data directory, and "
        "report its totals separately; repeatable, or comma-separated names.",
    ),
]

# ── others ────────────────────────────────────────────────────────────────────────────────────────

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Host = Annotated[str, typer.Option(help="Listen on this address.")]
FreePort = Annotated[
    int, typer.Option("--port", help="Listen on this port; 0 picks a free one.", min=0, max=65535)
]
Every = Annotated[float, typer.Option(help="Poll every N seconds.", min=0.1)]
JOBS_FOLDER = Path("outputs/jobs")
JobsFolder = Annotated[
    Path, typer.Option("--jobs", help="Keep the job log and a folder per job in this folder.")
]


def renamed(**names: str) -> dict[str, Any]:
    """Return context settings that let a command accept old option names, which its help omits.

    Args:
        names: old name → current name, without leading dashes.
    """
    today = {old.replace("_", "-"): new.replace("_", "-") for old, new in names.items()}
    return {"token_normalize_func": lambda word: today.get(word, word)}
