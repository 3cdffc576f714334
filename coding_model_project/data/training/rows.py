"""verl's training files: prompts, problems by reference, and the manifest beside them.

A row names its problem's id; the problems file (`data.problems`) holds the tests once, not in every row.
Files are written only for permitted roles (`data.governance`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from coding_model_project.atomic import replacing, write_json
from coding_model_project.data.files import file_hash
from coding_model_project.data.governance import role
from coding_model_project.data.problems import ProblemFile, problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra
from coding_model_project.grading.prompts import PromptStyle, solution_message, solve_messages
from coding_model_project.types import Problem

VerlRow = dict[str, Any]
"""A row of a training file, with verl's columns."""

_GROUP = 20_000
"""Number of rows held in memory; the first ones decide the columns' types."""


def rl_rows(
    problems: Iterable[Problem], style: PromptStyle, *, weights: Mapping[str, float] | None = None
) -> Iterator[VerlRow]:
    """Yield rows for verl's RL data set: a prompt, and the problem's id as ground truth.

    Args:
        weights: the weight of each data source in the mixture, stored in the row; by default 1.
    """
    for index, problem in enumerate(problems):
        yield {
            "data_source": source(problem),
            "prompt": solve_messages(problem, style=style),
            "ability": "code" if problem.asks_for_code else problem.graded_by,
            "reward_model": {"style": "rule", "ground_truth": problem.id},
            "extra_info": {
                "split": problem.split,
                "index": index,
                "difficulty": problem.difficulty or 0,
                "weight": float((weights or {}).get(source(problem), 1.0)),
            },
        }


def sft_rows(problems: Iterable[Problem], style: PromptStyle) -> Iterator[VerlRow]:
    """Yield rows for verl's SFT data set: conversations that end in the first gold solution."""
    return (sft_row(problem, problem.gold[0], style) for problem in problems)


def sft_row(problem: Problem, code: str, style: PromptStyle) -> VerlRow:
    """Return a row for verl's SFT data set: a conversation that ends in this solution."""
    return {
        "data_source": source(problem),
        "messages": [
            *solve_messages(problem, style=style),
            solution_message(code, style=style, language=problem.language),
        ],
        "extra_info": {"split": problem.split, "problem": problem.id},
    }


def source(problem: Problem) -> str:
    """Return the data set of a problem."""
    return source_of(problem.id)


def source_of(problem_id: str) -> str:
    """Return the data set of a problem, the first part of its id."""
    return problem_id.split("/")[0]


def write_rows(path: Path, rows: Iterable[VerlRow], *, trains: bool) -> None:
    """Write rows as parquet, atomically, a group of rows at a time.

    Args:
        trains: whether the file is for training, so that rows of data that must not train are an error.

    Raises:
        ConfigError: there are no rows, or rows that must not train.
    """
    with extra("rows"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    left = iter(rows)
    group = list(islice(left, _GROUP))
    if not group:
        raise ConfigError(f"{path}: no rows to write")
    schema = pa.Table.from_pylist(group).schema
    with replacing(path) as partial, pq.ParquetWriter(partial, schema) as writer:
        while group:
            for row in group if trains else ():
                refuse_training(row["data_source"], row["extra_info"]["split"], str(path))
            writer.write_table(pa.Table.from_pylist(group).cast(schema))
            group = list(islice(left, _GROUP))


def ids_of_rows(path: Path) -> set[str]:
    """Return the ids of the problems that a file of rows names."""
    with extra("rows"):
        import pyarrow.parquet as pq

    rl = "reward_model" in pq.read_schema(path).names
    rows = pq.read_table(path, columns=["reward_model" if rl else "extra_info"]).to_pylist()
    if rl:
        return {row["reward_model"]["ground_truth"] for row in rows}
    return {row["extra_info"]["problem"] for row in rows}


def refuse_training(name: str, split: str, where: str) -> None:
    """Raise if a split of a data set must not train.

    Raises:
        ConfigError: it must not train.
    """
    if not role(name, split).may_train:
        raise ConfigError(f"{where}: {name}_{split} is test only and must not train")


# ── manifests, and the files of earlier commands ───────────────────────────────────────────────────

MANIFEST = "manifest.json"
PROBLEMS = "problems.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """Files of rows that a command does not replace, with the problems that they name."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of rows by file."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the command that wrote each file."""
    problems: Iterable[Problem] = ()
    """Their problems that the new files do not name."""


def earlier_files(
    out: Path, names: Collection[str], problem: Callable[[str], Problem | None]
) -> Earlier:
    """Return the files in a folder that stay beside new ones.

    Args:
        names: the names of the new files, without their extension.
        problem: a function that returns a problem of the new files by its id.

    Raises:
        ConfigError: a kept file names a problem that the new files have in another form: one file of
            problems cannot hold both.
    """
    try:
        manifest = json.loads((out / MANIFEST).read_text("utf-8"))
        counts = {
            name: int(n)
            for name, n in manifest["counts"].items()
            if name not in names and (out / f"{name}.parquet").exists()
        }
        settings = {name: settings_of(manifest, name) for name in counts}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or another program's
        return Earlier()
    if not counts or not (out / PROBLEMS).exists():
        return Earlier()
    known = ProblemFile(out / PROBLEMS)
    kept: dict[str, None] = {}
    for file in counts:
        for problem_id in ids_of_rows(out / f"{file}.parquet"):
            if problem_id in kept or (old := known.get(problem_id)) is None:
                continue
            if (new := problem(problem_id)) is None:
                kept[problem_id] = None
            elif problem_line(old) != problem_line(new):
                raise ConfigError(
                    f"--out={out}: {file}.parquet has another version of problem {problem_id}; pass "
                    f"another --out, or delete {file}.parquet"
                )
    return Earlier(counts=counts, settings=settings, problems=map(known.__getitem__, kept))


def settings_of(manifest: Mapping[str, Any], name: str) -> Any:
    """Return the settings of the command that wrote a file."""
    return manifest.get("earlier_settings", {}).get(name, manifest["settings"])


def is_made(path: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether `write_manifest` wrote this manifest for the same settings of a generator.

    Raises:
        ConfigError: the folder holds files that no generator made, which making would overwrite.
    """
    if not path.exists():
        return False
    made = json.loads(path.read_text())["settings"]
    if "generator" not in made:
        raise ConfigError(
            f"coding.data_dir={path.parent} holds your own files, which the embedded tasks would "
            "overwrite; set coding.dataset=null to train on them (docs/my-data.md), or another "
            "coding.data_dir"
        )
    return made == settings


def style_of_rows(path: Path) -> PromptStyle | None:
    """Return the prompt style of a file of rows by the manifest beside it.

    None if there is no manifest, or if the file has changed since.
    """
    try:
        manifest = json.loads(path.with_name("manifest.json").read_text())
        recorded = manifest["sha256"][path.name]
        style = PromptStyle(settings_of(manifest, path.stem)["style"])
        content = file_hash(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or another program's
        return None
    return style if content == recorded else None


def write_manifest(
    path: Path,
    settings: Mapping[str, Any],
    counts: Mapping[str, int],
    earlier_settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a manifest. Call it last, since a manifest marks the files as complete.

    Args:
        counts: the number of rows of every file.
        earlier_settings: the settings of files that an earlier command wrote, by file.
    """
    files = sorted(path.parent.iterdir())
    hashes = {file.name: file_hash(file) for file in files if file.suffix in (".parquet", ".jsonl")}
    content = {"settings": settings, "counts": counts, "sha256": hashes}
    if earlier_settings:
        content["earlier_settings"] = earlier_settings
    write_json(path, content)
