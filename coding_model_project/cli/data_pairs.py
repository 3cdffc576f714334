"""The `data pairs` command: write preference pairs from evaluations, for recipes.dpo."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_model_project.cli.common import (
    DataDir,
    Datasets,
    PerProblem,
    ProblemsFile,
    Seed,
    Split,
    given_problems,
)
from coding_model_project.data.training.pairs import Similarity
from coding_model_project.errors import ConfigError

if TYPE_CHECKING:
    from coding_model_project.data.training.pairs import Judged
    from coding_model_project.grading.prompts import PromptStyle
    from coding_model_project.types import Problem

N_NAMED = 5


def pairs(
    evaluations: Annotated[
        list[Path],
        typer.Argument(metavar="EVAL_FOLDER...", help="Evaluations of training problems."),
    ],
    out: Annotated[
        Path, typer.Option(help="Write the pairs to this .parquet file, and a report beside it.")
    ],
    problems: ProblemsFile = None,
    dataset: Datasets = None,
    split: Split = None,
    data_dir: DataDir = None,
    contrasts: Annotated[
        str, typer.Option(help="Pair accepted programs with programs that fail with these errors.")
    ] = "wrong_answer,runtime_error,timeout,syntax_error",
    per_problem: PerProblem = 4,
    max_length_ratio: Annotated[
        float, typer.Option(help="Drop pairs with one side more than N times as long as the other.")
    ] = 2.0,
    balance_length: Annotated[
        bool,
        typer.Option(
            "--balance-length", help="Drop pairs until each side is the longer one equally often."
        ),
    ] = False,
    similarity: Annotated[
        Similarity,
        typer.Option(
            help="Choose the failing program nearest to the accepted one, or a random one."
        ),
    ] = Similarity.nearest,
    gold: Annotated[
        bool,
        typer.Option("--gold", help="Use gold solutions for problems without an accepted sample."),
    ] = False,
    validation: Annotated[
        float,
        typer.Option(help="Write the pairs of this share of problems to OUT_validation.parquet."),
    ] = 0.1,
    seed: Seed = 0,
) -> None:
    """Write preference pairs: an accepted and a failing program for the same problem.

    Ungradable samples are excluded. The last line is JSON.
    """
    from coding_model_project.atomic import write_json
    from coding_model_project.data.training.pair_report import bias_report
    from coding_model_project.data.training.pairs import (
        Controls,
        make_pairs,
        pair_rows,
    )
    from coding_model_project.data.training.pairs import split as divided
    from coding_model_project.data.training.rows import write_rows
    from coding_model_project.types import ErrorType

    known = [str(error) for error in ErrorType]
    names = [name.strip() for name in contrasts.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"--contrasts={unknown[0]}: unknown error type; expected some of {', '.join(known)}"
        )
    controls = Controls(
        contrasts=tuple(ErrorType(name) for name in names),
        per_problem=per_problem,
        max_length_ratio=max_length_ratio,
        balance_length=balance_length,
        similarity=similarity,
        gold=gold,
        seed=seed,
    )
    known_problems = given_problems(problems, dataset, data_dir, split=split)
    judged, style, left_out = _read(evaluations, known_problems)
    paired = make_pairs(judged, controls, style)
    train, held_out = divided(paired.pairs, validation, seed)
    report = bias_report(paired)
    report["left_out"] = {**report["left_out"], **left_out}
    files = {out: train, out.with_name(f"{out.stem}_validation{out.suffix}"): held_out}
    for path, members in files.items():
        if members:
            write_rows(path, pair_rows(members, style), trains=True)
        else:
            path.unlink(missing_ok=True)  # left over from an earlier run
    write_json(out.with_suffix(".json"), report)
    _say(report)
    for path, members in files.items():
        if members:
            print(f"{path}: {len(members)} pairs")
    print(json.dumps({**report["all"], "train": len(train), "validation": len(held_out)}))


def _read(
    folders: Sequence[Path], problems: Mapping[str, Problem]
) -> tuple[list[Judged], PromptStyle, dict[str, int]]:
    """Return the samples of all evaluations by problem, the style of their prompts, and what is left out.

    Raises:
        ConfigError: the evaluations do not match each other or the problems.
        DataError: a file is damaged.
    """
    from coding_model_project.data.training.pairs import Candidate, Judged
    from coding_model_project.evaluation.judged import one_style, read_judged
    from coding_model_project.types import ErrorType

    candidates: dict[str, list[Candidate]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    read = [read_judged(folder, problems) for folder in folders]
    for generated, result in (sample for one in read for sample in one.samples):
        usable = candidates[result.problem]
        if result.passed is None:
            left_out["ungradable samples"] += 1
        elif result.truncated:  # a pair would teach an end that nobody wrote
            left_out["samples cut off by the token limit"] += 1
        else:
            error = None if result.error is None else ErrorType(result.error).group
            usable.append(
                Candidate(completion=generated.completion, error=error, tokens=result.tokens)
            )
    judged = [
        Judged(problem=problem, candidates=tuple(candidates[name]))
        for name, problem in problems.items()
        if name in candidates
    ]
    if not judged:
        raise ConfigError(f"{', '.join(map(str, folders))}: no judged samples")
    for split, n in (held_out for one in read for held_out in one.held_out.items()):
        left_out[f"samples of {split} problems"] += n
    return judged, one_style(read), left_out


def _say(report: dict[str, Any]) -> None:
    """Print the bias report as a table, then the problems and pairs left out."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="accepted against", box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for name in ("pairs", "gold", "similarity", "chosen longer", "rejected longer"):
        table.add_column(name, justify="right")
    table.add_column("characters", justify="right")
    table.add_column("tokens", justify="right")
    for name, row in (*report["contrasts"].items(), ("all", report["all"])):
        table.add_row(
            name,
            f"{row['pairs']:,}",
            f"{row['gold']:,}",
            f"{row['similarity']:.2f}",
            f"{row['chosen_longer']:.0%}",
            f"{row['rejected_longer']:.0%}",
            *(
                ""
                if row[unit] is None
                else f"{row[unit]['chosen']:.0f} / {row[unit]['rejected']:.0f}"
                for unit in ("characters", "tokens")
            ),
        )
    Console(width=110).print(table)
    print("characters and tokens: means of chosen / rejected")
    for reason, found in report["problems_without"].items():
        more = ", ..." if found["count"] > N_NAMED else ""
        print(f"{found['count']} problems: {reason} ({', '.join(found['ids'][:N_NAMED])}{more})")
    for reason, count in report["left_out"].items():
        print(f"left out: {count} {reason}")
