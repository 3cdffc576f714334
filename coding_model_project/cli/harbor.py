"""The `harbor` command group: grade Harbor tasks, and evaluate models on them."""

from __future__ import annotations

import json
from pathlib import Path

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands
from coding_model_project.cli.harbor_eval import evaluate
from coding_model_project.cli.options import cores, existing_file, warn
from coding_model_project.config_key import option
from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import AUTO, TaskEnvironment

N_NAMED = 5

app = Commands(no_args_is_help=True, help="Grade Harbor tasks, and evaluate models on them.")


@app.command(context_settings=options.renamed(concurrency="workers", job="out"))
async def grade(
    task_dirs: list[Path] = option(..., options.TASK_DIRS),
    oracle: bool = option(False, "Run each task's own solution (the default)."),
    script: Path | None = option(None, "Run this shell script instead of each task's solution."),
    as_json: bool = option(False, options.AS_JSON),
    workers: int | None = option(None, options.TRIALS),
    environment: str = option(AUTO, options.ENVIRONMENT),
    verifier_env: dict[str, str] = option(
        {},
        "Set this environment variable for every verifier, and where a task's verifier asks "
        "for ${NAME}; repeatable.",
        metavar="NAME=VALUE",
    ),
    pass_env: list[str] = option([], options.PASS_ENV),
    out: Path | None = option(
        None, "Write the trials to this new folder in Harbor's layout, for `harbor view`."
    ),
) -> int:
    """Grade tasks: print a JSON line for each, including refused ones, and totals on standard error.

    With the oracle this checks the tasks: exit code 1 unless each is valid and its own solution earns a
    reward of at least 1. With --script it measures the script: exit code 0 whatever the rewards. Exit
    code 2 if there are no tasks, 3 if an environment failed, which leaves its task ungraded.
    """
    from coding_model_project.harbor.agents import Agent, Oracle, Script
    from coding_model_project.harbor.checking import Totals
    from coding_model_project.harbor.checking import grade as grade_tasks
    from coding_model_project.harbor.environment.factory import environments_of
    from coding_model_project.harbor.evaluation.job_folder import Job
    from coding_model_project.harbor.format.task import passed_variables
    from coding_model_project.harbor.format.tasks import Refused, read_tasks
    from coding_model_project.harbor.trial import Trials

    if oracle and script is not None:
        raise ConfigError("--oracle and --script exclude each other; pass one of them")
    solver: Agent = Oracle()
    if script is not None:
        solver = Script(existing_file(script, "--script").read_text("utf-8", "replace"))
    at_once = cores(workers)
    say = None if as_json else warn
    passed = passed_variables(pass_env, "--pass-env")
    tasks = read_tasks(task_dirs, passed, oracle=script is None, verifier_env=verifier_env, say=say)
    kept = None if out is None else Job.new(out, solver.name, environment)
    totals = Totals()
    async with environments_of(TaskEnvironment(name=environment)) as environments:
        trials = Trials(environments, verifier_env=verifier_env)
        work = ((task, solver) for task in tasks)
        async for graded in grade_tasks(work, trials, concurrency=at_once):
            print(json.dumps(graded.line()), flush=True)
            totals.add(graded)
            if isinstance(graded, Refused):
                continue
            if kept is not None:
                kept.add(graded)
            if not as_json:
                errors = dict.fromkeys(map(str, graded.errors))
                for line in (*graded.task.warnings, *graded.notes, *errors):
                    warn(f"{graded.task.label}: {line}")
    if kept is not None:
        tasks_of = [{"path": trial.path, "source": trial.source} for trial in kept.trials]
        kept.write(len(kept.trials), n_concurrent_trials=at_once, tasks=tasks_of)
    if not as_json:
        warn(str(totals))
        if script is None and totals.short:
            warn(f"the oracle earns a reward below 1: {_named(totals.short)}")
        if totals.without:
            warn(f"no valid reward: {_named(totals.without)}")
        if totals.in_process:
            named = _named(totals.in_process)
            warn(f"an agent could write its own reward (integrity in_process): {named}")
    if totals.failed:
        return 3
    return 1 if script is None and (totals.short or totals.without) else 0


@app.command(context_settings=options.renamed(concurrency="workers"))
async def check(
    task_dirs: list[Path] = option(..., options.TASK_DIRS),
    workers: int | None = option(None, options.TRIALS),
    environment: str = option(AUTO, options.ENVIRONMENT),
    runs: int = option(3, "Run each task's own solution N times.", min=1),
    forgeries: bool = option(
        True, "Run agents that try to earn each task's reward with known forgeries."
    ),
    pass_env: list[str] = option([], options.PASS_ENV),
) -> int:
    """Check that tasks are fit for training: print a JSON line for each, and totals on standard error.

    A task's own solution must earn the same reward of at least 1 in every run. Doing nothing and known
    forgeries must earn less. Exit code 1 if a task has a problem, 3 if an environment failed.
    """
    from coding_model_project.harbor.checking import FORGERS
    from coding_model_project.harbor.checking import check as check_tasks
    from coding_model_project.harbor.environment.factory import environments_of
    from coding_model_project.harbor.format.task import passed_variables
    from coding_model_project.harbor.format.tasks import read_tasks
    from coding_model_project.harbor.trial import Trials

    passed = passed_variables(pass_env, "--pass-env")
    tasks = read_tasks(task_dirs, passed, oracle=True, say=warn)
    how = {"concurrency": cores(workers), "runs": runs, "forgers": FORGERS if forgeries else ()}
    n_tasks, failed, unfit = 0, False, []
    async with environments_of(TaskEnvironment(name=environment)) as environments:
        async for checked in check_tasks(tasks, Trials(environments), **how):
            print(json.dumps(checked.line()), flush=True)
            n_tasks += 1
            failed = failed or checked.failed
            if checked.failed or checked.problems:
                unfit.append(checked.task)
    named = f"; not ok: {_named(unfit)}" if unfit else ""
    warn(f"{n_tasks} tasks: {n_tasks - len(unfit)} ok{named}")
    return 3 if failed else 1 if unfit else 0


app.command("eval", context_settings=options.renamed(concurrency="workers"))(evaluate)


@app.command()
def posttrain(
    out: Path = option(..., "Write the task to this folder, as a new one in it.", "--out --output"),
    benchmark: str = option(
        ..., "Evaluate on this benchmark: tinycode, humaneval, mbpp, gsm8k or ifeval."
    ),
    model: str = option(
        ..., "Train this model: tiny, qwen3-1.7b, qwen3-4b, smollm3-3b or gemma3-4b."
    ),
    num_hours: float = option(10.0, "Let the agent work for N hours."),
    base: Path | None = option(
        None,
        "Use the model in this folder as the task's base model. Default for tiny: "
        "data/tinycode/base.",
    ),
    sibling: dict[str, Path] = option(
        {}, "Reject submissions with this other model's weights; repeatable.", metavar="NAME=DIR"
    ),
    data_file: dict[str, str] = option(
        {}, "Read this named data set from this file; repeatable.", metavar="NAME=PATH"
    ),
    data_dir: Path | None = option(None, options.DATA_DIR),
    limit: int | None = option(None, options.LIMIT),
    oracle_steps: int | None = option(
        None, "Let the tiny task's own solution train for N steps.", min=1
    ),
) -> int:
    """Write a task in which an agent gets a base model, a benchmark and hours, and submits weights.

    The verifier checks the submission (for test problems, and for weights that were not trained from the
    base model), evaluates it and the base model by `eval run`'s rules, and writes reward.txt. A rejected
    submission earns the base model's score; without a judge's verdict there is no reward.
    `harbor grade OUT/posttrainbench-tinycode-tiny` runs the tiny task on this machine, in minutes.

    The last line is JSON.
    """
    from coding_model_project.harbor.posttrain.benchmarks import (
        base_model,
        check_data_files,
        folder_of,
        load_problems,
    )
    from coding_model_project.harbor.posttrain.benchmarks import benchmark as by_key
    from coding_model_project.harbor.posttrain.generating import (
        ORACLE_STEPS,
        Wanted,
        check_hours,
        write,
    )

    check_hours(num_hours)
    asked, chosen = by_key(benchmark), base_model(model)
    check_data_files(data_file, asked)
    wanted = Wanted(
        benchmark=asked,
        model=chosen,
        hours=num_hours,
        base=folder_of(chosen, base),
        siblings=sibling,
        oracle_steps=oracle_steps or ORACLE_STEPS,
    )
    problems = load_problems(asked, data_dir=data_dir, paths=data_file, limit=limit)
    print(f"the task is in {write(wanted, problems, out).path}")
    print(json.dumps({"out": str(out), "task": wanted.name}))
    return 0


def _named(tasks: list[str]) -> str:
    """Return the first few names and the number of others."""
    more = f" and {len(tasks) - N_NAMED} more" if len(tasks) > N_NAMED else ""
    return f"{', '.join(tasks[:N_NAMED])}{more}"


@app.command()
async def clean() -> None:
    """Remove the images that tasks left in podman and docker, and containers of killed runs."""
    from coding_model_project.harbor.environment.base import ENGINES, EnvironmentFailed
    from coding_model_project.harbor.environment.containers import ContainerEnvironments

    for program in ENGINES:
        try:
            async with ContainerEnvironments(program) as environments:
                removed, used = await environments.clean()
        except EnvironmentFailed as error:
            warn(f"{program}: {error}")
        else:
            kept = f", {used} in use" if used else ""
            print(f"{program}: {removed} images removed{kept}")
