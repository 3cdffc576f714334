"""The `data` command group: prepare data sets, and check them for grading and training.

data_checks   preflight: judges a set's tests
data_rows     rows, rates: training files of data sets
data_samples  sft-rows, pairs, repair-traces: training files of evaluations
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coding_model_project.cli import data_checks, data_rows, data_samples, options
from coding_model_project.cli.commands import Commands, only
from coding_model_project.cli.options import print_first, publishes
from coding_model_project.config_key import argument, option
from coding_model_project.data.governance import EVALUATION_SETS
from coding_model_project.episodes.bash import Calls
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.data.catalogue import Entry

_WIDTH = 180
"""Table width in characters where the output is not a terminal."""


_WHOLE = ("name", "found", "role: splits")
"""Columns that do not wrap."""


app = Commands(no_args_is_help=True, help="Prepare and check data sets.")


@app.command("list")
def list_sets(
    data_dir: Path | None = option(None, options.DATA_DIR),
    as_json: bool = option(False, options.AS_JSON),
    out: Path | None = option(
        None, "Write the table to this Markdown file, without the local files found."
    ),
) -> None:
    """List the data sets known by name: splits, roles, tests, licence, and local files found.

    Each name also works with a split appended (mbpp_train). With --json the output is a list of
    objects: name, splits with their roles, tests, licence, hub, files (searched for), found.
    """
    from coding_model_project.data.catalogue import catalogue, render
    from coding_model_project.data.loaders import data_dir as folder

    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(render(), "utf-8")
        print(f"the page is in {out}")
        return
    entries = catalogue(folder(data_dir))
    if as_json:
        print(json.dumps([asdict(entry) for entry in entries]))
        return
    _show(entries)
    n_found = sum(bool(entry.found) for entry in entries)
    print(
        f"\n{n_found} of {len(entries)} found under {folder(data_dir)}; the others download from the Hub."
    )


def _show(entries: tuple[Entry, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in (*_WHOLE, "tests", "licence", "hub, and files searched for"):
        narrow = 24 if column in ("tests", "licence") else None
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE, max_width=narrow)
    for one in entries:
        uses = one.uses.replace("; ", "\n")
        places = "\n".join(word for word in (one.hub, ", ".join(one.files)) if word)
        table.add_row(one.name, one.status, uses, one.tests, one.licence, places)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(width=_WIDTH, markup=False, highlight=False)
    console.print(table)


app.command()(data_checks.preflight)
app.command()(publishes(data_rows.rates))
app.command()(publishes(data_rows.rows))


@app.command()
@publishes
def dedup(
    training: list[str] = argument(
        ..., "Training sets by name or file, or files of problems.", metavar="NAME[=PATH]..."
    ),
    out: Path = option(..., "Write problems, manifest and report to this folder."),
    against: list[str] = option(
        [], "Remove problems of these evaluation sets, comma-separated. Default: all."
    ),
    columns: dict[str, str] = option({}, options.COLUMNS),
    split: str | None = option(None, options.SPLIT),
    data_dir: Path | None = option(None, options.DATA_DIR),
    download: bool = option(False, "Download missing evaluation sets."),
    max_tests: int = option(50, "Keep at most N hidden tests per problem.", min=1),
    strict: bool = option(False, "Exit with code 1 if an evaluation set is missing."),
    as_json: bool = option(False, options.AS_JSON),
) -> int:
    """Remove duplicates and copies of evaluation problems from training sets.

    The last line is JSON.
    """
    from coding_model_project.data.dedup.govern import as_json as pictured
    from coding_model_project.data.dedup.govern import govern

    governed = govern(
        training,
        against=",".join(against).split(",") if against else EVALUATION_SETS,
        out=out,
        folder=data_dir,
        download=download,
        max_tests=max_tests,
        columns=columns,
        split=split,
        say=lambda line: None if as_json else options.warn(line),
    )
    if not as_json:
        for name, why in governed.absent:
            options.warn(f"not checked: {name}: {why}")
        print(f"problems, manifest and report are in {out}")
    picture = pictured(governed)
    keys = ("kept", "removed", "removed_by", "seconds")
    line = {key: picture[key] for key in keys} | {"not_checked": sorted(picture["not_checked"])}
    print(json.dumps(line))
    return 1 if strict and governed.absent else 0


app.command()(publishes(data_samples.sft_rows))
app.command()(publishes(data_samples.pairs))
app.command()(publishes(data_samples.repair_traces))


@app.command()
def export_harbor(
    name: str = option(..., options.DATASET),
    out: Path = option(..., "Write the tasks to this new folder, one subfolder per task."),
    *,
    data: Annotated[options.OneSet, only("path", "split", "data_dir", "max_tests", "limit")],
    train_size: int | None = option(
        None,
        "Write the first N problems that may be trained on, by id, to OUT/train, and all others "
        "to OUT/test.",
        min=1,
    ),
    as_json: bool = option(False, options.AS_JSON),
) -> int:
    """Write a data set's problems as Harbor tasks: NAME-NUMBER/ with instruction, tests and solution.

    The agent writes /app/solution.py. The instruction names the functions that the reference solution
    defines, and shows no hidden test. The verifier runs in a separate environment, needs python3 but no
    network, and writes "reward" (1 if all hidden tests pass, else 0) and "pass_rate".

    Problems without a reference solution, in a language other than Python, or with a checker are set
    aside with the reason. The same problems give the same files.

    Afterwards `harbor run -p OUT -a oracle`, or this program's `harbor grade OUT/* --oracle`, must give
    1.0 for every task. `data rows OUT --out ROWS` converts the tasks to verl's training rows.

    The last line is JSON. Exit code 1 if no task was written.
    """
    from coding_model_project.harbor.export.exporting import divided, export
    from coding_model_project.harbor.format.task import check_new

    check_new(out)
    name, loaded = data.load(name)
    problems = loaded.problems[: data.limit]
    parts = {out: problems}
    if train_size is not None:
        train, test = divided(problems, train_size)
        parts = {out / "train": train, out / "test": test}
    with progress_bar(f"{name} as Harbor tasks", len(problems)) as advance:
        exported = [export(part, folder, advance) for folder, part in parts.items()]
    tasks = [task for part in exported for task in part.tasks]
    set_aside = [reason for part in exported for reason in part.set_aside.items()]
    if not as_json:
        for note in loaded.notes:
            print(f"note: {note}")
        print_first([f"set aside: {problem}: {reason}" for problem, reason in set_aside])
        print(f"{len(tasks)} tasks are in {out}")
    line = {
        "dataset": name,
        "tasks": len(tasks),
        "set_aside": len(set_aside) + len(loaded.set_aside),
    }
    print(json.dumps(line))
    return 0 if tasks else 1


@app.command()
@publishes
def prepare(
    name: str = argument(..., "The data set: tinycode, tinygolf, tinymix or tinyshell."),
    out: Path | None = option(None, "Write the files to this folder. Default: data/NAME."),
    seed: int = option(0, options.SEED),
    sft_demonstrations: int = option(200, "Use N tinycode solutions as SFT demonstrations."),
    base_model: bool = option(
        False, "Also pre-train the tiny base model from scratch.", "--base-model/--no-base-model"
    ),
    calls: Calls = option(
        Calls.block, "Write tinyshell's commands as code blocks or tool calls (to data/NAME_tools)."
    ),
) -> None:
    """Write a data set's problems and training files, unless they exist.

    tinycode: Python functions with tests. tinymix: tinycode plus arithmetic. tinygolf: Harbor tasks to
    shorten a function. tinyshell: Harbor tasks of one or two shell commands.
    """
    from coding_model_project.synthetic.prepare import SETS
    from coding_model_project.synthetic.tiny_model import pretrain_once

    if calls is not Calls.block and name != "tinyshell":
        raise ConfigError(
            f"--calls={calls}: {name} has no commands; only tinyshell takes this option"
        )
    if name not in SETS:
        raise ConfigError(f"data prepare {name}: expected one of {', '.join(SETS)}")
    folder = out or Path("data") / (name if calls is Calls.block else f"{name}_{calls}")
    made = import_module(SETS[name])
    how = {"calls": calls} if name == "tinyshell" else {}
    own = {"style": PromptStyle.bare, "sft_demonstrations": sft_demonstrations}
    own = own if name == "tinycode" else {}
    made.prepare_files(folder, seed=seed, say=print, **how, **own)
    if base_model:
        pretrain_once(folder, made.starting_model(seed, **how), seed=seed, say=print)
    print(f"{name} is in {folder}")
