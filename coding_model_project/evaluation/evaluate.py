"""A whole evaluation in a run's folder, from its configuration to its outputs.

Several processes may evaluate a shard each; `gather` puts them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
from omegaconf import DictConfig

from coding_model_project.atomic import replacing, write_json
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation import outputs
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.journal import Journal, read_rows, storage_errors
from coding_model_project.evaluation.outputs import Report
from coding_model_project.evaluation.plan import BUDGET, DataSet, Sample, load_datasets, samples
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    METRICS,
    RESULTS,
    RUN_INFO,
    Generated,
    Metrics,
    Result,
    refuse_outage,
    setting_differences,
    with_completions,
)
from coding_model_project.evaluation.runner import Runner, evaluation_bar, read_known
from coding_model_project.evaluation.settings import Settings
from coding_model_project.evaluation.tables import budget_table, metrics_table, months_table
from coding_model_project.grading.judge import make_sandbox, open_judge
from coding_model_project.grading.observation import can_repair
from coding_model_project.redaction import redacted
from coding_model_project.runs.folder import RunFolder, State, sole_writer
from coding_model_project.runs.lease import Heartbeat
from coding_model_project.runs.mirror import mirrored
from coding_model_project.runs.resuming import has_made_something, inputs_of, refuse_changes
from coding_model_project.runs.rollouts import ROLLOUTS, Rollout
from coding_model_project.runs.starting import end_attempt, start_attempt
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.sandbox.sandbox_config import SandboxConfig

RECIPE = "baseline"
Say = Callable[[str], None]


def evaluate(
    settings: Settings,
    backend: Backend,
    *,
    config: DictConfig,
    command: Sequence[str],
    say: Say,
    make: Callable[[SandboxConfig], Sandbox] = make_sandbox,
    report: Report | None = None,
) -> Metrics:
    """Evaluate a model, or resume an earlier attempt.

    Args:
        backend: the back end that generates; started only if samples are missing.
        config: configuration of the settings, for the record.
        command: command line of the evaluation, for the record.
        say: called with each line of output.
        make: makes the sandbox; it is started only if verdicts are missing.
        report: writes the page about the evaluation; None writes none.

    Returns:
        The content of metrics.json.

    Raises:
        ConfigError: a key, a data set or the folder is invalid; raised before generation starts.
        DataError: a file is damaged; names the file and the line.
        GenerationError, SandboxError, StorageError, ClusterError: infrastructure failed, or left samples
            without a verdict. All results so far are kept, and the same command resumes.
    """
    make(settings.sandbox)  # raises early if the sandbox is unknown
    run = RunFolder(settings.run_dir)
    with sole_writer(run.path, "evaluation"), mirrored(config, run.path, say) as start_mirror:
        datasets = load_datasets(settings.config)
        versions = {f"data set {data.name}": data.version for data in datasets}
        served = settings.config.base_url is not None  # then the model is the server's, not a file
        model = {} if served else inputs_of(config, "coding.evaluation.model")
        inputs = {**model, **versions}
        n, shard = settings.protocol.sampling.n, settings.shard
        planned = list(samples(datasets, n=n, seed=settings.seed, shard=shard))
        if not planned:
            raise ConfigError(f"shard={shard.number}/{shard.of}: has no problems")
        info = _run_info(settings, datasets, backend)
        # How it differs from the recorded one, whose samples it would mix with.
        bound: list[str] = []
        if (run.path / RUN_INFO).exists() and has_made_something(run):
            recorded = orjson.loads((run.path / RUN_INFO).read_bytes())
            bound = setting_differences(_bound(recorded), _bound(info))
        if run.attempts() and run.state is State.finished and not settings.force:
            refuse_changes(run, config, inputs, bound=bound)
            start_mirror()
            metrics = orjson.loads((run.path / METRICS).read_bytes())
            say(metrics_table(metrics, settings.protocol.ks))
            say(f"{run.path} has finished; pass a new folder for another evaluation")
            return metrics
        problems = (problem for data in datasets for problem in data.problems)
        if settings.protocol.repair_rounds and not any(map(can_repair, problems)):
            raise ConfigError(
                "coding.evaluation.repair_rounds: no problem has a public test to repair with; set it "
                "to 0"
            )
        for data in datasets:
            say(f"{data.name}: {len(data.problems)} problems ({data.origin}); {data.splits()}")
            for note in data.notes:
                say(f"note: {note}")
        say(_described(settings, backend))
        attempt = start_attempt(
            run.path,
            config,
            recipe=RECIPE,
            inputs=inputs,
            command=list(command),
            force=settings.force,
            bound=bound,
            say=say,
        )
        start_mirror()
        try:
            with Heartbeat(run.log_dir(attempt.number)):
                metrics = asyncio.run(
                    _evaluate(settings, datasets, planned, info, backend, make, say)
                )
        except BaseException as error:
            end_attempt(run.path, attempt, error)
            raise
        end_attempt(run.path, attempt)
        outputs.write_report(run, report)  # after the attempt's end, which the report shows
    say(f"written to {run.path}")
    return metrics


async def _evaluate(
    settings: Settings,
    datasets: Sequence[DataSet],
    planned: Sequence[Sample],
    info: Metrics,
    backend: Backend,
    make: Callable[[SandboxConfig], Sandbox],
    say: Say,
) -> Metrics:
    folder, protocol = settings.run_dir, settings.protocol
    with (
        Journal(folder / COMPLETIONS, Generated) as completions,
        Journal(folder / RESULTS, Result) as results,
        Journal(folder / ROLLOUTS, Rollout) as rollouts,
    ):
        write_json(folder / RUN_INFO, info)
        known = read_known(completions, results, planned)
        rollouts.rewrite(
            outputs.rollout_of(one.problem, known.generated[one.key], result, protocol)
            for one in planned
            if (result := known.judged.get(one.key)) is not None
        )
        n_known = len(known.generated), len(known.judged)
        if any(n_known):
            say(f"resuming with {n_known[0]} completions and {n_known[1]} verdicts")
        if n_known[1] < len(planned):
            opened = open_judge(
                settings.sandbox,
                make=make,
                style=protocol.prompt,
                stop_early=protocol.stop_early,
                stop_at_limit=True,
                tasks=settings.tasks,
            )
            async with AsyncExitStack() as stack:
                judge = await stack.enter_async_context(opened)
                if n_known[0] < len(planned):
                    await stack.enter_async_context(backend)
                    for note in await backend.check(protocol.sampling):
                        say(f"note: {note}")
                progress = stack.enter_context(evaluation_bar(len(planned), *n_known))
                runner = Runner(
                    backend=backend,
                    public=judge.public,
                    grader=judge.hidden,
                    protocol=protocol,
                    completions=completions,
                    results=results,
                    rollouts=rollouts,
                    known=known,
                    progress=progress,
                )
                await runner.run(planned)
    by_key = with_completions(folder, read_rows(folder / RESULTS, Result))
    judged = [(sample, *by_key[sample.key]) for sample in planned]
    with storage_errors(folder):
        metrics = outputs.write_all(folder, judged, datasets, protocol, settings.config.cutoff)
    if settings.config.wandb:
        outputs.log_to_wandb(folder, metrics, judged, protocol, info)
    say(metrics_table(metrics, protocol.ks))
    for table in months_table(metrics):
        say(table)
    results = [one[2] for one in judged]
    for note in outputs.notes(metrics, protocol, results):
        say(f"note: {note}")
    if protocol.name == BUDGET.name:
        say(budget_table(metrics))
    if all(generated.refused for _, generated, _ in judged):
        raise ConfigError(
            f"no prompt was answered ({judged[0][1].refused}); if the model's context is too short, "
            "lower coding.evaluation.max_tokens (--max-tokens)"
        )
    refuse_outage(results, "run the same command again to judge them without generating again")
    return metrics


def _described(settings: Settings, backend: Backend) -> str:
    """Return a line with the settings that a score depends on most."""
    protocol, sampling = settings.protocol, settings.protocol.sampling
    more = {"system_prompt": protocol.system_prompt, **sampling.optional()}
    options = "".join(
        f"{name}={repr(value)[:60]} " for name, value in more.items() if value not in (None, "")
    )
    return (
        f"{settings.config.model} ({backend.identity}): protocol={protocol.name} n={sampling.n} "
        f"temperature={sampling.temperature:g} prompt={protocol.prompt} {options}"
        f"max_tokens={sampling.max_tokens}"
    )


def _run_info(settings: Settings, datasets: Sequence[DataSet], backend: Backend) -> Metrics:
    """Return the content of run_info.json."""
    versions = {data.name: data.version for data in datasets}
    shard = settings.shard
    info = {
        "model": settings.config.model,
        "seed": settings.seed,
        "protocol": settings.protocol.described(versions),
        "datasets": {
            data.name: {
                "version": data.version,
                "problems": len(data.problems),
                "set_aside": data.n_set_aside,
                "origin": data.origin,
            }
            for data in datasets
        },
        "profile": settings.config.profile,
        "cutoff": settings.config.cutoff,
        "backend": backend.identity,
        "repeatable": backend.repeatable,
        "shard": None if shard.of == 1 else f"{shard.number}/{shard.of}",
    }
    return redacted(info)


def _bound(info: Mapping[str, Any]) -> Metrics:
    """Return the settings and versions on which an evaluation's samples depend."""
    return {key: info.get(key) for key in ("model", "seed", "protocol", "shard")} | {
        f"data set {name}": data["version"] for name, data in info.get("datasets", {}).items()
    }


# ── shards ────────────────────────────────────────────────────────────────────────────────────────


def gather(settings: Settings, folders: Sequence[Path], *, say: Callable[[str], None]) -> None:
    """Merge shards' folders into the evaluation's folder, where evaluating then does the rest.

    The evaluation completes what shards left unfinished and repeats nothing. Does nothing if the
    evaluation has begun.

    Args:
        settings: the whole evaluation's settings: the shards', without `shard` and with another folder.

    Raises:
        ConfigError: a folder is not a shard's, or the shards are of different evaluations.
    """
    target = settings.run_dir
    if settings.shard.of > 1:
        raise ConfigError("--shard and --merge exclude each other; pass --merge without --shard")
    if (target / COMPLETIONS).exists():
        say(f"{target} has begun; resuming it")
        return
    infos: list[dict[str, Any]] = []
    for folder in folders:
        try:
            info = orjson.loads((folder / RUN_INFO).read_bytes())
        except FileNotFoundError as error:
            raise ConfigError(f"{folder}: not a shard's folder (it has no {RUN_INFO})") from error
        infos.append(info)
        for key in ("model", "seed", "protocol"):
            if info[key] != infos[0][key]:
                raise ConfigError(
                    f"{folder}: {key} differs from that of {folders[0]}; merge shards of one evaluation"
                )
    shards = sorted(str(info["shard"]) for info in infos)
    of = shards[0].partition("/")[2] or "1"
    expected = sorted(f"{number}/{of}" for number in range(int(of)))
    if shards != expected:
        raise ConfigError(
            f"--merge: the folders hold {', '.join(shards)}; expected {', '.join(expected)}"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, COMPLETIONS):  # COMPLETIONS last: it marks the evaluation as begun
        with replacing(target / name) as partial, partial.open("wb") as merged:
            for folder in folders:
                with (folder / name).open("rb") as part:
                    merged.writelines(line for line in part if line.endswith(b"\n"))
    write_json(target / RUN_INFO, infos[0] | {"shard": None})
