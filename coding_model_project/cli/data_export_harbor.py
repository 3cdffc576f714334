"""The `data export-harbor` command: write problems as Harbor tasks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import (
    AsJson,
    DataDir,
    DatasetName,
    DatasetPath,
    Limit,
    MaxTests,
    Split,
    given_dataset,
)
from coding_model_project.progress import progress_bar

N_SHOWN = 20


def export_harbor(
    name: DatasetName,
    out: Annotated[
        Path, typer.Option(help="Write the tasks to this new folder, one subfolder per task.")
    ],
    path: DatasetPath = None,
    split: Split = None,
    data_dir: DataDir = None,
    max_tests: MaxTests = None,
    limit: Limit = None,
    as_json: AsJson = False,
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
    from coding_model_project.data.loaders import load
    from coding_model_project.harbor.export.exporting import check_new, export

    check_new(out)
    name, path = given_dataset(name, path)
    loaded = load(name, path=path, split=split, data_dir=data_dir, max_tests=max_tests)
    problems = loaded.problems[:limit]
    with progress_bar(f"{name} as Harbor tasks", len(problems)) as advance:
        exported = export(problems, out, advance)
    if not as_json:
        for note in loaded.notes:
            print(f"note: {note}")
        for problem, reason in list(exported.set_aside.items())[:N_SHOWN]:
            print(f"set aside: {problem}: {reason}", file=sys.stderr)
        if len(exported.set_aside) > N_SHOWN:
            print(f"and {len(exported.set_aside) - N_SHOWN} more", file=sys.stderr)
        print(f"{len(exported.tasks)} tasks are in {out}")
    line = {
        "dataset": name,
        "tasks": len(exported.tasks),
        "set_aside": len(exported.set_aside) + len(loaded.set_aside),
    }
    print(json.dumps(line))
    return 0 if exported.tasks else 1
