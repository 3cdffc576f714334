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
    from coding_model_project.data.quality.rates import Rate


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
    from coding_model_project.data.quality.rates import Rate
    from coding_model_project.evaluation.results import read_evaluation

    if column is not None:
        found: dict[str, float] = {}
        for word in evaluations:
            name, path = given_set(word)
            found |= published_rates(name, column, path=path, split=split, data_dir=data_dir)
        _write(
            out,
            {name: Rate(hits=round(rate * samples), total=samples) for name, rate in found.items()},
            as_json,
        )
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
    _write(out, {name: Rate.of(passed) for name, passed in verdicts.items()}, as_json)


def _write(out: Path, measured: dict[str, Rate], as_json: bool) -> None:
    from coding_model_project.data.training.rates import write_rates

    write_rates(out, measured)
    never = sum(rate.hits == 0 for rate in measured.values())
    always = sum(rate.hits == rate.total for rate in measured.values())
    if as_json:
        print(json.dumps({"problems": len(measured), "never": never, "always": always}))
        return
    mean = fmean(rate.hits / rate.total for rate in measured.values())
    judged = fmean(rate.total for rate in measured.values())
    print(
        f"{out}: {len(measured)} problems, {judged:.3g} samples each, mean rate {mean:.3f}; "
        f"{never} never passed, {always} always"
    )
