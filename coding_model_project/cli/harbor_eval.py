"""The `harbor eval` command: a model attempts Harbor tasks, with the bash agent or one of the user's."""

from __future__ import annotations

import asyncio
import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coding_model_project.cli import options
from coding_model_project.cli.commands import only
from coding_model_project.cli.options import cores, warn
from coding_model_project.config_key import argument, option
from coding_model_project.episodes.bash import Calls, Limits
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.grading.base import AUTO, ROOMS, TaskEnvironment
from coding_model_project.harbor.harbor_config import AgentConfig, AgentPlace
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.harbor.evaluation.job import Evaluation
    from coding_model_project.harbor.evaluation.scores import Score

_FILES, _FILES_A_TRIAL = 200, 4
"""Open files of an evaluation: fixed, and per trial."""


def evaluate(
    *,
    base_url: str | None = option(
        None,
        "Query this OpenAI-compatible server, such as http://localhost:8000/v1. Default: vLLM in this "
        "process loads the model.",
    ),
    model: str = option(
        ..., "Evaluate this model, by its name on the server; without one, a folder or a Hub name."
    ),
    out: Path = option(..., "Write the job to this folder, or resume it."),
    task_dirs: list[Path] = argument([], "Harbor tasks, or folders of them.", metavar="TASK_DIR"),
    benchmark: list[str] = option([], options.BENCHMARKS),
    data_dir: Path | None = option(None, options.DATA_DIR),
    limit: int | None = option(
        None, "Use only the first N tasks of each benchmark.", "--limit --n-tasks", min=1
    ),
    attempts: int = option(1, "Attempt each task N times.", min=1),
    workers: int | None = option(None, "Run N trials at once. Default: two per CPU core.", min=1),
    environment: str = option(AUTO, options.ENVIRONMENT),
    pass_env: list[str] = option([], options.PASS_ENV),
    limits: Annotated[Limits, only("turns", "command_s", "total_s")],
    agent: Annotated[AgentConfig, only("command", "place", "folder")],
    agent_env: dict[str, str] = option(
        {}, "Set this environment variable for the agent; repeatable.", metavar="NAME=VALUE"
    ),
    context_tokens: int = option(
        131_072, "Tell the agent that a conversation may have N tokens.", min=1
    ),
    calls: Calls = option(
        Calls.block, "Read commands from code blocks, or from calls of the tool `bash`."
    ),
    max_tokens: int = option(2048, "Cut a completion off after N tokens.", min=1),
    temperature: float = option(0.7, "Sample at this temperature.", min=0.0),
    retry_s: float = option(
        300.0, "Retry a request for up to N seconds, then end its trial.", min=0
    ),
    as_json: bool = option(False, options.AS_JSON),
) -> int:
    """Let a model attempt tasks: count PASS, FAIL, and ERROR by cause.

    The bash agent runs the model's shell commands; with `--agent COMMAND` any agent does the work that
    uses an API of OpenAI or Anthropic.

    With `--calls tools` the server gets the schema of a tool `bash` and must parse tool calls (vLLM:
    `--enable-auto-tool-choice --tool-call-parser hermes`).

    OUT has Harbor's job layout (`harbor view`). The same command resumes after it was stopped or
    killed; it repeats only unfinished trials and those that an outage ended. Rates exclude errors.
    The server's API key is read from OPENAI_API_KEY.

    The last line is JSON. Exit code 3 if an outage ended trials; the same command retries those.
    """
    from coding_model_project.evaluation.backends.generation import Sampling
    from coding_model_project.evaluation.settings import simple_backend
    from coding_model_project.harbor.environment.factory import environments_of
    from coding_model_project.harbor.evaluation.benchmarks import runnable_tasks
    from coding_model_project.harbor.evaluation.job import Asked, Evaluation
    from coding_model_project.harbor.format.task import passed_variables
    from coding_model_project.harbor.gateway.serving import Gateway
    from coding_model_project.harbor.trial import Trials
    from coding_model_project.launch.device import count_gpus
    from coding_model_project.runs.folder import sole_writer

    agent = _checked(agent, limits, agent_env, calls)
    place = TaskEnvironment(name=environment)
    if agent.place is AgentPlace.room:
        place = replace(place, name=ROOMS, agent=agent.folder)
    asked = Asked(
        model=model,
        attempts=attempts,
        environment=place.name,
        limits=limits,
        sampling=Sampling(temperature=temperature, max_tokens=max_tokens),
        calls=calls,
        agent_config=agent,
        context_tokens=context_tokens,
    )
    passed = passed_variables(pass_env, "--pass-env")
    tasks = runnable_tasks(
        task_dirs,
        benchmark,
        data_dir,
        place.name,
        limit=limit,
        passed=passed,
        say=warn,
    )
    at_once = workers or 2 * cores(None)
    _allow_files(at_once)

    async def run() -> None:
        config = EvaluationConfig(
            model=model, base_url=base_url, concurrency=at_once, retry_s=retry_s
        )
        backend = simple_backend(config, seed=0, on_cpu=base_url is None and count_gpus() == 0)
        gateway = Gateway(max_bytes=agent.request_bytes)
        async with backend, gateway, environments_of(place) as environments:
            with progress_bar("trials", evaluation.n_total, len(evaluation.trials)) as advance:
                await evaluation.run(Trials(environments), backend, gateway, at_once, advance)

    with sole_writer(out, "evaluation"):
        evaluation = Evaluation(out, tasks, asked)
        with evaluation.opened():
            if evaluation.missing():
                asyncio.run(run())
    return _report(evaluation, as_json, named=bool(benchmark))


def _checked(agent: AgentConfig, limits: Limits, env: dict[str, str], calls: Calls) -> AgentConfig:
    """Return the agent with the limits of all agents.

    Raises:
        ConfigError: options do not fit together.
    """
    if not agent.on:
        if agent != AgentConfig() or env:
            raise ConfigError("--agent is missing, which the other options --agent-… are for")
        return agent
    if calls is not Calls.block:
        raise ConfigError(f"--calls={calls} is for the bash agent; remove it or --agent")
    if agent.folder:
        folder = Path(agent.folder).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"--agent-folder={agent.folder}: no such folder")
        agent = replace(agent, folder=str(folder))
    return replace(agent, env=env, total_s=limits.total_s)


def _allow_files(at_once: int) -> None:
    """Raise this process's open-file limit to what this many concurrent trials need.

    Raises:
        ConfigError: the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_A_TRIAL * at_once
    if needed <= soft or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        most = max(1, (hard - _FILES) // _FILES_A_TRIAL)
        raise ConfigError(
            f"--workers={at_once}: needs {needed} open files, and this machine allows {hard}; pass at "
            f"most {most}, or raise `ulimit -Hn`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _report(evaluation: Evaluation, as_json: bool, *, named: bool) -> int:
    from coding_model_project.harbor.evaluation.scores import by_source, score, summary, task_table

    trials = evaluation.trials
    parts = by_source(trials, evaluation.sources)
    counted = summary(trials)
    if named or len(parts) > 1:
        counted["benchmarks"] = {name: summary(part) for name, part in parts.items()}
    if not as_json:
        for name, part in parts.items():
            if len(parts) > 1:
                print(f"{name}:")
            print(task_table(part))
            _print_rates(score(part))
        if len(parts) > 1:
            print(
                f"all of {', '.join(parts)}:\nPASS {counted['PASS']}, FAIL {counted['FAIL']}, "
                f"ERROR {counted['ERROR']}"
            )
            _print_rates(score(trials))
    outages = [trial for trial in trials if trial.is_outage]
    for reason in sorted({trial.error for trial in outages}):
        warn(f"outage: {reason}")
    for reason in sorted({trial.error for trial in trials if trial.is_unusable}):
        warn(f"not evaluated: {reason}")
    print(json.dumps(counted))
    return 3 if outages else 0


def _print_rates(counted: Score) -> None:
    """Print pass@k with the interval of pass@1, and the number of tasks that it does not count."""
    for k, rate in counted.pass_at_k.items():
        low, high = counted.interval or (rate, rate)
        interval = f" (95%: {low:.1%} – {high:.1%})" if k == 1 else ""
        print(f"pass@{k}: {rate:.1%}{interval} over {counted.n_tasks} tasks")
    if counted.n_tasks_without:
        print(f"{counted.n_tasks_without} tasks have no trial without an error")
