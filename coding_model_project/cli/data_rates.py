"""The `data rates` command: measure a model's pass rate on each training problem."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from coding_model_project.cli.common import AsJson
from coding_model_project.errors import DataError


def rates(
    evaluations: Annotated[
        list[Path],
        typer.Argument(metavar="EVAL_FOLDER...", help="Evaluations of training problems."),
    ],
    out: Annotated[Path, typer.Option(help="Write one line per problem to this file.")],
    as_json: AsJson = False,
) -> None:
    """Measure each problem's pass rate from evaluations with several samples per problem.

    Each line has a problem's id, pass rate and 95% interval, easiest problem first. `data rows` takes
    the file as --rates, to filter by --min-rate and --max-rate, and as --order.
    """
    from coding_model_project.data.training.rates import Rate, write_rates
    from coding_model_project.evaluation.results import read_evaluation

    verdicts: dict[str, list[bool]] = defaultdict(list)
    models = set()
    for folder in evaluations:
        evaluation = read_evaluation(folder)
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
    write_rates(out, measured)
    never = sum(rate.passed == 0 for rate in measured)
    always = sum(rate.passed == rate.judged for rate in measured)
    if as_json:
        print(json.dumps({"problems": len(measured), "never": never, "always": always}))
        return
    mean = fmean(rate.rate for rate in measured)
    samples = fmean(rate.judged for rate in measured)
    print(
        f"{out}: {len(measured)} problems, {samples:.3g} samples each, mean rate {mean:.3f}; "
        f"{never} never passed, {always} always"
    )
