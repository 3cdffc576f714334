"""Options that several commands share: an option has the same name and help text in every command.

A single one is an `Option`, which a command's parameter gives its type and default:
`seed: int = option(0, options.SEED)`. Options of one purpose are a dataclass, which commands take whole.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

from coding_model_project.cli.commands import only
from coding_model_project.config_key import Option, option, option_of
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import CodingModelError, ConfigError, DataError
from coding_model_project.evaluation.evaluation_config import Cluster, EvaluationConfig
from coding_model_project.extras import extra
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.storage.fetching import on_disk, published
from coding_model_project.storage.object_store import as_url, is_url
from coding_model_project.types import Problem

if TYPE_CHECKING:
    from coding_model_project.data.loaders import Loaded, SetAside


# ── single options ────────────────────────────────────────────────────────────────────────────────


def _evaluations(name: str) -> Option:
    """Return the option of a key of `coding.evaluation`."""
    return option_of(EvaluationConfig, name)


DATASETS = _evaluations("datasets")
COLUMNS = _evaluations("columns")
SPLIT = _evaluations("split")
DATA_DIR = _evaluations("data_dir")
MAX_TESTS = _evaluations("max_tests")
LIMIT = _evaluations("limit")
STOP_EARLY = _evaluations("stop_early")
WORKERS = option_of(SandboxConfig, "workers")
DATASET = Option(
    "The data set, by name or from its file or URL.", metavar="NAME[=PATH]", is_argument=True
)
PER_PROBLEM = Option("Keep at most N per problem.", "-n --per-problem", min=1)
MUTANTS = Option("Add N mutants of each gold solution to the known-bad programs.", min=0)
TOKENIZER = Option("Count tokens with this model's tokenizer.")
SEED = Option("Seed all random choices.")

TASK_DIRS = Option(
    "Harbor tasks, folders of them, or Parquet files of them.",
    metavar="TASK_DIR",
    is_argument=True,
)
TRIALS = Option("Run N trials at once. Default: one per CPU core.", "--workers", min=1)
ENVIRONMENT = Option(
    "Run trials in `rooms`, in containers of `podman` or `docker`, in Harbor's own environments "
    "(`harbor:TYPE`), or in those of `package.module:Factory`, which may be a sandbox factory of the "
    "tinker cookbook. `auto` takes rooms for tasks that need nothing but a system, and containers "
    "for others.",
    metavar="NAME",
)
PASS_ENV = Option(
    "Let tasks have this machine's variable NAME, which they ask for by ${NAME}; repeatable.",
    metavar="NAME",
)
BENCHMARKS = Option(
    "Use the tasks of this folder, or of the folder with this name in the data directory, and "
    "report its totals separately; repeatable, or comma-separated names.",
    "--benchmark --benchmarks",
    metavar="NAME[=PATH]",
)

AS_JSON = Option("Print JSON only.", "--json")
HOST = Option("Listen on this address.")
FREE_PORT = Option("Listen on this port; 0 picks a free one.", min=0, max=65535)
EVERY = Option("Poll every N seconds.", min=0.1)

# ── problems and data sets ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """The problems of a file or of data sets."""

    file: Path | None = option(
        None, "Read problems from this JSON Lines file or URL.", "--problems", metavar="FILE"
    )
    datasets: list[str] = option([], DATASETS)
    columns: dict[str, str] = option({}, COLUMNS)
    split: str | None = option(None, SPLIT)
    data_dir: Path | None = option(None, DATA_DIR)

    def __str__(self) -> str:
        return f"--problems={self.file}" if self.file else f"--dataset={', '.join(self.datasets)}"

    def load(self) -> dict[str, Problem]:
        """Return the problems by id.

        Raises:
            ConfigError: neither or both of file and data sets are given, or a file is missing, damaged or
                empty; names the option, the file and the line.
        """
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


OwnProblems = Annotated[Problems, only("file", "datasets", "split", "data_dir")]
"""`Problems` in their own schema or in a data set's, without --map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSet:
    """The part of a data set that a command uses, whose name is its argument."""

    path: str | None = option(None, "Read the data set from this file, folder or URL.")
    columns: dict[str, str] = option({}, COLUMNS)
    split: str | None = option(None, SPLIT)
    data_dir: Path | None = option(None, DATA_DIR)
    max_tests: int | None = option(None, MAX_TESTS)
    limit: int | None = option(None, LIMIT)

    def load(self, name: str) -> tuple[str, Loaded]:
        """Return the name and the whole data set of NAME, NAME=PATH, NAME --path PATH or a path."""
        from coding_model_project.data.loaders import given_set, load

        name, path = given_set(name) if self.path is None else (name, self.path)
        return name, load(
            name,
            path=path,
            split=self.split,
            data_dir=self.data_dir,
            columns=self.columns,
            max_tests=self.max_tests,
        )


# ── where programs run ────────────────────────────────────────────────────────────────────────────

Judging = Annotated[SandboxConfig, only("workers", "min_tier")]
"""The embedded sandbox of a command that judges."""
JudgingOrServed = Annotated[SandboxConfig, only("workers", "min_tier", "urls")]
"""`Judging`, or SandboxFusion servers."""
Confined = Annotated[SandboxConfig, only("min_tier", "python", "preload")]
"""The embedded sandbox of a command that runs one program at a time."""


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

    def sandbox(self, config: SandboxConfig) -> Sandbox:
        """Return an unopened sandbox, here or on all nodes of a cluster.

        Raises:
            ConfigError: the cluster has no address, or Ray is not installed.
        """
        if self.cluster is None:
            return embedded_sandbox(config)
        with extra("train"):
            from coding_model_project.verl_ext.cluster.node_sandbox import NodesSandbox
            from coding_model_project.verl_ext.cluster.session import head_address, joined

        return NodesSandbox(config, join=partial(joined, head_address(self.ray_address)), say=warn)


def renamed(**names: str) -> dict[str, Any]:
    """Return context settings that let a command accept old option names, which its help omits.

    Args:
        names: old name → current name, without leading dashes.
    """
    today = {old.replace("_", "-"): new.replace("_", "-") for old, new in names.items()}
    return {"token_normalize_func": lambda word: today.get(word, word)}


# ── helpers that several commands share ───────────────────────────────────────────────────────────


_N_SHOWN = 20
P = ParamSpec("P")
R = TypeVar("R")


def cores(given: int | None) -> int:
    """Return the given number, or by default the number of CPU cores available to this process."""
    return given or usable_cores()


def embedded_sandbox(config: SandboxConfig) -> Sandbox:
    """Return an embedded sandbox that has not been started."""
    return make_sandbox(config)


def on_servers(config: SandboxConfig) -> SandboxConfig:
    """Return the configuration with SandboxFusion selected if it has servers."""
    return replace(config, name="fusion") if config.urls else config


def existing_file(path: Path, option: str) -> Path:
    """Return the path of an existing file, or of a local copy of the object behind a URL.

    Raises:
        ConfigError: the file does not exist; names the option.
        DownloadError: the store does not answer.
    """
    if is_url(path):
        try:
            return on_disk(path)
        except CodingModelError as error:
            raise type(error)(f"{option}: {error}") from error
    if not path.is_file():
        raise ConfigError(f"{option}: {path}: no such file")
    return path


@contextmanager
def local_runs(
    paths: Sequence[Path], *, every_s: float | None = None, light: bool = False
) -> Iterator[tuple[list[Path], Callable[[Path], str]]]:
    """Yield local folders in place of mirrored runs' URLs, and a function that names them for display.

    Args:
        every_s: seconds between polls for changes; None pulls once.
        light: skip samples, logs and traces.

    Raises:
        ConfigError: a URL has no mirrored run, or cannot be read.
        DownloadError: the store does not answer.
    """
    if not any(map(is_url, paths)):
        yield list(paths), str
        return
    from coding_model_project.runs.following import Followed, everything, is_light, pulling

    followed = {
        path: Followed(as_url(path), is_light if light else everything)
        for path in paths
        if is_url(path)
    }
    for one in followed.values():
        one.pull()

    def shown(path: Path) -> str:
        roots = [one for one in followed.values() if path.is_relative_to(one.root)]
        return roots[0].shown(path) if roots else str(path)

    folders = [followed[path].root if path in followed else path for path in paths]
    with pulling(list(followed.values()) if every_s else [], every_s or 0, warn):
        yield folders, shown


say = partial(print, flush=True)
"""Print a line and flush it, because standard output may be a followed file."""


def warn(line: str) -> None:
    """Print a line to standard error, and flush it."""
    print(line, file=sys.stderr, flush=True)


def publishes(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command's --out be a URL: write to a temporary folder, then upload it."""

    @functools.wraps(command)
    def published_command(*args: P.args, **kwargs: P.kwargs) -> R:
        out = kwargs.get("out")
        if not isinstance(out, Path) or not is_url(out):
            return command(*args, **kwargs)
        with published(out) as local:
            kwargs["out"] = local
            return command(*args, **kwargs)

    return published_command


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    width: int | None = None,
) -> None:
    """Print a table without lines.

    Args:
        left: see `evaluation.tables.plain_table`.
        width: its width in characters; None is the terminal's.
    """
    from rich.console import Console

    from coding_model_project.evaluation.tables import plain_table

    Console(width=width, highlight=False).print(plain_table(columns, rows, left=left))


def print_first(lines: Sequence[str]) -> None:
    """Print the first lines to standard error, and the number of the others."""
    for line in lines[:_N_SHOWN]:
        print(line, file=sys.stderr)
    if len(lines) > _N_SHOWN:
        print(f"and {len(lines) - _N_SHOWN} more", file=sys.stderr)


def print_set_aside(notes: Iterable[str], set_aside: Sequence[SetAside], n_used: int) -> None:
    """Print why rows are not used, most frequent reasons first."""
    for note in notes:
        print(f"note: {note}")
    if not set_aside:
        return
    print(f"{len(set_aside)} rows set aside, {n_used} used:")
    for reason, count in Counter(row.reason for row in set_aside).most_common(_N_SHOWN):
        first = next(row.where for row in set_aside if row.reason == reason)
        print(f"  {count} × {reason} (first: {first})")
