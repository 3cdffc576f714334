"""The `harbor posttrain` command: write tasks in which an agent post-trains a base model."""

from __future__ import annotations

import json
from pathlib import Path

from coding_model_project.cli import options
from coding_model_project.cli.common import named_values
from coding_model_project.config_key import option
from coding_model_project.errors import ConfigError, DownloadError


def posttrain(
    out: Path = option(..., "Write the tasks to this new folder.", "--out --output"),
    benchmark: str | None = option(
        None, "Evaluate on this benchmark: tinycode, humaneval, mbpp, gsm8k or ifeval."
    ),
    model: str | None = option(
        None, "Train this model: tiny, qwen3-1.7b, qwen3-4b, smollm3-3b or gemma3-4b."
    ),
    num_hours: float = option(10.0, "Let the agent work for N hours."),
    every: bool = option(False, "Write a task for each benchmark and model.", "--all"),
    base: Path | None = option(
        None,
        "Use the model in this folder as the task's base model. Default for tiny: "
        "data/tinycode/base.",
    ),
    sibling: list[str] | None = option(
        None, "Reject submissions with this other model's weights; repeatable.", metavar="NAME=DIR"
    ),
    data_file: list[str] | None = option(
        None, "Read this named data set from this file; repeatable.", metavar="NAME=PATH"
    ),
    data_dir: options.DataDir = None,
    limit: options.Limit = None,
    oracle_steps: int | None = option(
        None, "Let the tiny task's own solution train for N steps.", min=1
    ),
) -> int:
    """Write tasks in which an agent gets a base model, a benchmark and hours, and submits weights.

    The verifier checks the submission (for test problems, and for weights that were not trained from the
    base model), evaluates it and the base model by `eval run`'s rules, and writes reward.txt. A rejected
    submission earns the base model's score; without a judge's verdict there is no reward.
    `harbor grade OUT/posttrainbench-tinycode-tiny` runs the tiny task on this machine, in minutes.

    The last line is JSON. With --all, benchmarks whose data is not available are skipped and listed.
    """
    from coding_model_project.harbor.export.exporting import check_new
    from coding_model_project.harbor.posttrain.base_models import (
        BASE_MODELS,
        base_model,
        folder_of,
    )
    from coding_model_project.harbor.posttrain.benchmarks import (
        BENCHMARKS,
        check_data_files,
        load_problems,
    )
    from coding_model_project.harbor.posttrain.benchmarks import benchmark as by_key
    from coding_model_project.harbor.posttrain.generating import (
        ORACLE_STEPS,
        Wanted,
        check_hours,
        write,
    )

    if every == (benchmark is not None or model is not None) or (
        not every and (benchmark is None or model is None)
    ):
        raise ConfigError("pass --benchmark and --model, or --all")
    check_hours(num_hours)
    benchmarks = list(BENCHMARKS.values()) if every else [by_key(str(benchmark))]
    models = list(BASE_MODELS.values()) if every else [base_model(str(model))]
    check_new(out)
    folders = {
        one.key: folder_of(one, base if not every or one.hub is None else None) for one in models
    }
    siblings = {
        name: Path(path)
        for name, path in named_values("--sibling", sibling, form="NAME=PATH").items()
    }
    paths = named_values("--data-file", data_file, form="NAME=PATH")
    check_data_files(paths, benchmarks)
    written: list[str] = []
    left_out: dict[str, str] = {}
    for asked in benchmarks:
        try:
            problems = load_problems(asked, data_dir=data_dir, paths=paths, limit=limit)
        except DownloadError as error:
            if not every:
                raise
            left_out[asked.key] = str(error)
            continue
        for one in models:
            wanted = Wanted(
                benchmark=asked,
                model=one,
                hours=num_hours,
                base=folders[one.key],
                siblings=siblings if one.hub is None or not every else {},
                oracle_steps=oracle_steps or ORACLE_STEPS,
            )
            written.append(str(write(wanted, problems, out).path))
    for key, reason in left_out.items():
        print(f"left out: {key}: {reason}")
    print(f"{len(written)} tasks are in {out}")
    print(json.dumps({"out": str(out), "tasks": len(written), "left_out": sorted(left_out)}))
    return 0 if written else 1
