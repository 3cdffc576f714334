"""Options that several commands share, and helpers that read them.

An option has the same name and help text in every command, so define shared ones here.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import CodingModelError, ConfigError
from coding_model_project.evaluation.evaluation_config import Cluster
from coding_model_project.grading.readings import CountedBy
from coding_model_project.isolation.confine import Tier

if TYPE_CHECKING:
    from coding_model_project.data.loaders import SetAside
    from coding_model_project.sandbox.base import Sandbox
    from coding_model_project.types import Problem

_N_SHOWN = 20
P = ParamSpec("P")
R = TypeVar("R")

# ── options ───────────────────────────────────────────────────────────────────────────────────────

_DATASET = typer.Option(
    "--dataset",
    metavar="NAME[=PATH]",
    help="Load this data set, by name or from its file, folder or URL; repeatable.",
)
Datasets = Annotated[list[str] | None, _DATASET]
NeededDatasets = Annotated[list[str], _DATASET]
"""`Datasets` for commands where it is required."""
ProblemsFile = Annotated[
    Path | None,
    typer.Option(
        "--problems", metavar="FILE", help="Read problems from this JSON Lines file or URL."
    ),
]
DatasetName = Annotated[
    str,
    typer.Argument(metavar="NAME[=PATH]", help="The data set, by name or from its file or URL."),
]
DatasetPath = Annotated[
    str | None,
    typer.Option("--path", help="Read the data set from this file, folder or URL."),
]
MapColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=COLUMN",
        help="Read this field from that column of the file, such as statement=question; repeatable.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Look here for named data sets. Default: $CODING_DATA_DIR or ./data."),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="Load only this split; also the split of a file whose name and rows name none."
    ),
]
Limit = Annotated[int | None, typer.Option(help="Use only the first N problems.", min=1)]
MaxTests = Annotated[
    int | None, typer.Option(help="Keep at most N hidden tests per problem.", min=1)
]
PerProblem = Annotated[
    int, typer.Option("-n", "--per-problem", help="Keep at most N per problem.", min=1)
]
Mutants = Annotated[
    int,
    typer.Option(help="Add N mutants of each gold solution to the known-bad programs.", min=0),
]
Tokenizer = Annotated[str | None, typer.Option(help="Count tokens with this model's tokenizer.")]
Seed = Annotated[int, typer.Option(help="Seed all random choices.")]
Workers = Annotated[
    int | None,
    typer.Option(help="Run N programs at once. Default: one per CPU core.", min=1),
]
Python = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Run programs in this CPython. Default: the current one."),
]
Preload = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Import this module once for all programs; repeatable."),
]
TaskDirs = Annotated[
    list[Path], typer.Argument(metavar="TASK_DIR", help="Harbor tasks, or folders of them.")
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
        help="Run trials in `rooms`, in `docker` or `podman` containers, in Harbor's own environments "
        "(`harbor:TYPE`), or in those of `package.module:Factory`.",
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
MinTier = Annotated[Tier, typer.Option(help="Refuse isolation weaker than this tier.")]
OnCluster = Annotated[
    Cluster | None,
    typer.Option(
        "--cluster", help="Judge on all nodes of a Ray cluster. Default: this machine only."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Connect to the Ray head at this address. Default: $RAY_ADDRESS."
    ),
]
JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        help="Append each result to this file, from which the same command resumes.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Rule = Annotated[
    CountedBy,
    typer.Option(
        help="Rule that decides what counts as accepted where a data set's publisher has another than "
        "this judge. Both readings are reported.",
    ),
]
StopEarly = Annotated[
    bool, typer.Option("--stop-early", help="Stop at a program's first failing test.")
]
SandboxUrls = Annotated[
    list[str] | None,
    typer.Option("--sandbox-url", help="Judge on this SandboxFusion server; repeatable."),
]
JOBS_FOLDER = Path("outputs/jobs")
JobsFolder = Annotated[
    Path, typer.Option("--jobs", help="Keep the job log and a folder per job in this folder.")
]
Host = Annotated[str, typer.Option(help="Listen on this address.")]
FreePort = Annotated[
    int, typer.Option("--port", help="Listen on this port; 0 picks a free one.", min=0, max=65535)
]


Every = Annotated[float, typer.Option(help="Poll every N seconds.", min=0.1)]


def renamed(**names: str) -> dict[str, Any]:
    """Return context settings that let a command accept old option names, which its help omits.

    Args:
        names: old name → current name, without leading dashes.
    """
    today = {old.replace("_", "-"): new.replace("_", "-") for old, new in names.items()}
    return {"token_normalize_func": lambda word: today.get(word, word)}


# ── helpers ──────────────────────────────────────────────────────────────────────────────────────


def cores(given: int | None) -> int:
    """Return the given number, or by default the number of CPU cores available to this process."""
    return given or usable_cores()


def given_problems(
    problems: Path | None,
    datasets: Sequence[str] | None,
    data_dir: Path | None,
    map_columns: Sequence[str] | None = None,
    split: str | None = None,
) -> dict[str, Problem]:
    """Return the problems of `--problems FILE` or `--dataset NAME[=PATH]`, by id.

    Args:
        map_columns: values of `--map`; only for files.
        split: value of `--split`.

    Raises:
        ConfigError: neither or both options are given, or a file is missing, damaged or empty; names
            the option, the file and the line.
    """
    from coding_model_project.data.loaders import given_set, load
    from coding_model_project.data.loaders.forms import parse_map
    from coding_model_project.data.problems import read_problems
    from coding_model_project.errors import DataError

    if (problems is None) == (not datasets):
        raise ConfigError("pass exactly one of --problems FILE and --dataset NAME[=PATH]")
    try:
        columns = parse_map(map_columns)
        if problems is not None and not columns and split is None:
            found = read_problems(existing_file(problems, "--problems"))
        else:
            file = problems and existing_file(problems, "--problems")
            named = [(file.stem, file)] if file else [given_set(word) for word in datasets or ()]
            loaded = [
                load(name, path=path, split=split, data_dir=data_dir, columns=columns)
                for name, path in named
            ]
            for one in loaded:
                if one.set_aside:
                    first = one.set_aside[0]
                    print(
                        f"{one.name}: {len(one.set_aside)} rows set aside, {len(one.problems)} used "
                        f"(first: {first.where}: {first.reason})",
                        file=sys.stderr,
                    )
            found = [problem for one in loaded for problem in one.problems]
    except DataError as error:
        option = "--problems" if problems is not None else "--dataset"
        raise ConfigError(f"{option}: {error}") from error
    if not found and problems is not None:
        raise ConfigError(f"--problems: {problems} is empty")
    if not found:
        raise ConfigError(f"--dataset={', '.join(datasets or ())}: no usable problems")
    by_id = {problem.id: problem for problem in found}
    if len(by_id) < len(found):
        again = next(name for name, n in Counter(one.id for one in found).items() if n > 1)
        raise ConfigError(
            f"--dataset: problem id {again!r} is in two of these sets; pass one set at a time"
        )
    return by_id


def given_dataset(name: str, path: str | None) -> tuple[str, str | None]:
    """Return a data set's name and path from NAME, NAME=PATH, NAME --path PATH or a path."""
    from coding_model_project.data.loaders import given_set

    return (name, path) if path is not None else given_set(name)


def embedded_sandbox(
    workers: int | None,
    min_tier: Tier,
    *,
    python: str | None = None,
    preload: Sequence[str] | None = None,
) -> Sandbox:
    """Return an embedded sandbox that has not been started."""
    from coding_model_project.grading.judge import make_sandbox
    from coding_model_project.sandbox.sandbox_config import SandboxConfig

    config = SandboxConfig(
        workers=workers, min_tier=min_tier, python=python, preload=list(preload or ())
    )
    return make_sandbox(config)


def existing_file(path: Path, option: str) -> Path:
    """Return the path of an existing file, or of a local copy of the object behind a URL.

    Raises:
        ConfigError: the file does not exist; names the option.
        DownloadError: the store does not answer.
    """
    from coding_model_project.storage.fetching import on_disk
    from coding_model_project.storage.object_store import is_url

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
    from coding_model_project.storage.object_store import as_url, is_url

    if not any(map(is_url, paths)):
        yield list(paths), str
        return
    from coding_model_project.runs.mirror.replica import Followed, everything, is_light, pulling

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


def named_values(
    option: str, words: Sequence[str] | None, *, form: str = "NAME=VALUE", empty: bool = False
) -> dict[str, str]:
    """Parse an option's NAME=VALUE words.

    Args:
        form: expected form, for the message.
        empty: accept an empty value.

    Raises:
        ConfigError: a word has another form.
    """
    values: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not name or not equals or not (value or empty):
            raise ConfigError(f"{option}={word}: expected {form}")
        values[name] = value
    return values


def publishes(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command's --out be a URL: write to a temporary folder, then upload it."""

    @functools.wraps(command)
    def published_command(*args: P.args, **kwargs: P.kwargs) -> R:
        from coding_model_project.storage.object_store import is_url
        from coding_model_project.storage.publishing import published

        out = kwargs.get("out")
        if not isinstance(out, Path) or not is_url(out):
            return command(*args, **kwargs)
        with published(out) as local:
            kwargs["out"] = local
            return command(*args, **kwargs)

    return published_command


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
