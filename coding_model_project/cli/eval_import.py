"""The `eval import` command: judge samples of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coding_model_project.cli.common import (
    DataDir,
    Limit,
    MaxTests,
    MinTier,
    NeededDatasets,
    Rule,
    Seed,
    Split,
    StopEarly,
    Workers,
    say,
)
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.imports.formats import Format
from coding_model_project.grading.readings import CountedBy
from coding_model_project.isolation.confine import Tier

HELP = """Judge samples that another tool generated; the result is an evaluation like any other.

It has intervals and a report, and can be compared, exported and rejudged. Its protocol is named
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


def import_(
    samples: Annotated[Path, typer.Argument(metavar="SAMPLES", help="The file of samples.")],
    dataset: NeededDatasets,
    model: Annotated[str, typer.Option(help="Name the model that generated the samples.")],
    out: Annotated[Path, typer.Option(help="Write results to this folder, or resume it.")],
    format: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Read the file in this format. Default: detected from its first row."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Record this sampling temperature; required with several samples per problem."
        ),
    ] = None,
    seed: Seed = 1,
    split: Split = None,
    limit: Limit = None,
    max_tests: MaxTests = None,
    stop_early: StopEarly = False,
    rule: Rule = CountedBy.publisher,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
    data_dir: DataDir = None,
) -> None:
    from coding_model_project.configs.typed import coding_of, evaluation_settings, new_config
    from coding_model_project.evaluation.imports.importing import judge_samples, match
    from coding_model_project.evaluation.plan import load_datasets
    from coding_model_project.runs.provenance import command_line

    if len(dataset) > 1:
        raise ConfigError(
            f"--dataset={dataset[1]}: a samples file has one data set; import each file separately"
        )
    (data,) = load_datasets(
        dataset, data_dir=data_dir, split=split, limit=limit, max_tests=max_tests
    )
    found = match(samples, data, format)
    if found.n > 1 and temperature is None:
        raise ConfigError(
            f"{samples}: {found.n} samples per problem; pass the --temperature T that they were sampled "
            "at, to record it"
        )
    config = new_config(
        {
            "run_dir": str(out),
            "seed": seed,
            "prompt": found.style,
            "sandbox": {"workers": workers, "min_tier": min_tier},
        },
        {
            "model": model,
            "datasets": dataset,
            "data_dir": str(data_dir) if data_dir else None,
            "n": found.n,
            "temperature": temperature,
            "split": split,
            "limit": limit,
            "max_tests": max_tests,
            "stop_early": stop_early,
            "rule": rule,
        },
    )
    settings = evaluation_settings(coding_of(config))
    judge_samples(found, settings, config=config, command=command_line(), say=say)
