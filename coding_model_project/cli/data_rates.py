"""The `data rates` command: measure a model's pass rate on each training problem."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import AsJson, DataDir, Split
from coding_model_project.errors import DataError

if TYPE_CHECKING:
    from coding_model_project.data.training.rates import Rate


def rates(
    evaluations: Annotated[
        list[str],
        typer.Argument(
            metavar="EVAL_FOLDER...",
            help="Evaluations of training problems; with --column, data sets.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Write one line per problem to this file.")],
    column: Annotated[
        str | None,
        typer.Option(
            help="Take the rates that a data set's publisher measured from this column of its rows."
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Samples per problem that the column's rates are of.", min=1)
    ] = 8,
    split: Split = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure each problem's pass rate from evaluations, or take the rates that its publisher measured.

    Each line has a problem's id, pass rate and 95% interval, easiest problem first. `data rows` takes
    the file as --rates, to filter by --min-rate and --max-rate, and as --order.
    """
    from coding_model_project.data.loaders import given_set, published_rates
    from coding_model_project.data.training.rates import Rate
    from coding_model_project.evaluation.results import read_evaluation

    if column is not None:
        found: dict[str, float] = {}
        for word in evaluations:
            name, path = given_set(word)
            found |= published_rates(name, column, path=path, split=split, data_dir=data_dir)
        measured = [Rate.of(name, round(rate * samples), samples) for name, rate in found.items()]
        _write(out, measured, as_json)
        return
    verdicts: dict[str, list[bool]] = defaultdict(list)
    models = set()
    for folder in evaluations:
        evaluation = read_evaluation(Path(folder))
        models.add(evaluation.model)
        for dataset in evaluation.datasets():
            for problem, results in evaluation.by_problem(dataset).items():
                verdicts[problem] += [result.passed is True for result in results]
    if not verdicts:
        raise DataError(f"{evaluations[0]}: no judged samples")
    if len(models) > 1:
        raise DataError(
            f"evaluations of several models: {', '.join(sorted(models))}; pass those of one model"
        )
    measured = [Rate.of(name, sum(passed), len(passed)) for name, passed in verdicts.items()]
    _write(out, measured, as_json)


def _write(out: Path, measured: list[Rate], as_json: bool) -> None:
    from coding_model_project.data.training.rates import write_rates

    write_rates(out, measured)
    never = sum(rate.passed == 0 for rate in measured)
    always = sum(rate.passed == rate.judged for rate in measured)
    if as_json:
        print(json.dumps({"problems": len(measured), "never": never, "always": always}))
        return
    mean = fmean(rate.rate for rate in measured)
    judged = fmean(rate.judged for rate in measured)
    print(
        f"{out}: {len(measured)} problems, {judged:.3g} samples each, mean rate {mean:.3f}; "
        f"{never} never passed, {always} always"
    )
