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
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.evaluation import outputs
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.journal import Journal, read_rows, storage_errors
from coding_model_project.evaluation.outputs import Report
from coding_model_project.evaluation.plan import (
    BUDGET,
    DataSet,
    EvalProtocol,
    Sample,
    load_datasets,
    samples,
)
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    METRICS,
    RESULTS,
    RUN_INFO,
    Generated,
    Metrics,
    Result,
    setting_differences,
    with_completions,
)
from coding_model_project.evaluation.runner import (
    Known,
    Runner,
    evaluation_bar,
    read_known,
)
from coding_model_project.evaluation.settings import Settings
from coding_model_project.evaluation.tables import budget_table, metrics_table, months_table
from coding_model_project.grading.judge import make_sandbox, open_judge
from coding_model_project.grading.observation import can_repair
from coding_model_project.redaction import redacted
from coding_model_project.runs.folder import RunFolder, State, sole_writer
from coding_model_project.runs.lease import Heartbeat
from coding_model_project.runs.mirror import mirrored
from coding_model_project.runs.resuming import has_made_something, inputs_of, refuse_changes
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
        GenerationError, SandboxError, StorageError, ClusterError: infrastructure failed. All results
            so far are kept, and the same command resumes.
    """
    make(settings.sandbox)  # raises early if the sandbox is unknown
    run = RunFolder(settings.run_dir)
    with sole_writer(run.path, "evaluation"), mirrored(config, run.path, say) as start_mirror:
        datasets = load_datasets(settings.config)
        versions = {f"data set {data.name}": data.version for data in datasets}
        served = settings.config.base_url is not None  # then the model is the server's, not a file
        inputs = (
            versions if served else {**inputs_of(config, "coding.evaluation.model"), **versions}
        )
        planned = _planned(settings, datasets)
        info = _run_info(settings, datasets, backend)
        bound = _bound_changes(run, info)
        if run.attempts() and run.state is State.finished and not settings.force:
            refuse_changes(run, config, inputs, bound=bound)
            start_mirror()
            metrics = orjson.loads((run.path / METRICS).read_bytes())
            say(metrics_table(metrics, settings.protocol.ks))
            say(f"{run.path} has finished; pass a new folder for another evaluation")
            return metrics
        _refuse_nothing_to_repair(datasets, settings.protocol)
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
    ):
        write_json(folder / RUN_INFO, info)
        known = read_known(completions, results, planned)
        n_known = len(known.generated), len(known.judged)
        if any(n_known):
            say(f"resuming with {n_known[0]} completions and {n_known[1]} verdicts")
        if n_known[1] < len(planned):
            await _run(settings, planned, backend, make, known, completions, results, say)
    by_key = with_completions(folder, read_rows(folder / RESULTS, Result))
    judged = [(sample, *by_key[sample.key]) for sample in planned]
    with storage_errors(folder):
        results = [one[2] for one in judged]
        metrics = outputs.write_metrics(folder, results, datasets, protocol, settings.config.cutoff)
        outputs.write_rollouts(folder, judged, protocol)
        outputs.write_qa_logs(folder, judged, protocol)
        outputs.write_summary(folder, metrics, judged)
    if settings.config.wandb:
        outputs.log_to_wandb(folder, metrics, judged, protocol, info)
    say(metrics_table(metrics, protocol.ks))
    for table in months_table(metrics):
        say(table)
    for note in outputs.notes(metrics, protocol, results):
        say(f"note: {note}")
    if protocol.name == BUDGET.name:
        say(budget_table(metrics))
    _refuse_outage(judged)
    return metrics


async def _run(
    settings: Settings,
    planned: Sequence[Sample],
    backend: Backend,
    make: Callable[[SandboxConfig], Sandbox],
    known: Known,
    completions: Journal[Generated],
    results: Journal[Result],
    say: Say,
) -> None:
    n_known = len(known.generated), len(known.judged)
    opened = open_judge(
        settings.sandbox,
        make=make,
        style=settings.protocol.prompt,
        stop_early=settings.protocol.stop_early,
        stop_at_limit=True,
        tasks=settings.tasks,
    )
    async with AsyncExitStack() as stack:
        judge = await stack.enter_async_context(opened)
        if n_known[0] < len(planned):
            await stack.enter_async_context(backend)
            for note in await backend.check(settings.protocol.sampling):
                say(f"note: {note}")
        progress = stack.enter_context(evaluation_bar(len(planned), *n_known))
        runner = Runner(
            backend=backend,
            public=judge.public,
            grader=judge.hidden,
            protocol=settings.protocol,
            completions=completions,
            results=results,
            known=known,
            progress=progress,
        )
        await runner.run(planned)


def _refuse_nothing_to_repair(datasets: Sequence[DataSet], protocol: EvalProtocol) -> None:
    """Raise `ConfigError` if repairs are configured and no problem has a public test."""
    if protocol.repair_rounds and not any(
        can_repair(p) for data in datasets for p in data.problems
    ):
        raise ConfigError(
            "coding.evaluation.repair_rounds: no problem has a public test to repair with; set it to 0"
        )


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


def _planned(settings: Settings, datasets: Sequence[DataSet]) -> list[Sample]:
    """Return the samples to generate and judge.

    Raises:
        ConfigError: the shard has no problems.
    """
    n, shard = settings.protocol.sampling.n, settings.shard
    planned = list(samples(datasets, n=n, seed=settings.seed, shard=shard))
    if not planned:
        raise ConfigError(f"shard={shard.number}/{shard.of}: has no problems")
    return planned


def _bound_changes(run: RunFolder, info: Mapping[str, Any]) -> list[str]:
    """Return how an evaluation differs from the recorded one whose samples it would have to mix with."""
    path = run.path / RUN_INFO
    if not (path.exists() and has_made_something(run)):
        return []
    return setting_differences(_bound(orjson.loads(path.read_bytes())), _bound(info))


def _bound(info: Mapping[str, Any]) -> Metrics:
    """Return the settings and versions on which an evaluation's samples depend."""
    return {key: info.get(key) for key in ("model", "seed", "protocol", "shard")} | {
        f"data set {name}": data["version"] for name, data in info.get("datasets", {}).items()
    }


def _refuse_outage(judged: Sequence[outputs.Judged]) -> None:
    """Raise if the evaluation is unfinished because samples have no verdict.

    Raises:
        SandboxError: an outage left samples without a verdict; the same command judges them again.
        ConfigError: the model could not answer any prompt.
    """
    if all(generated.refused for _, generated, _ in judged):
        why = judged[0][1].refused
        raise ConfigError(
            f"no prompt was answered ({why}); if the model's context is too short, lower "
            "coding.evaluation.max_tokens (--max-tokens)"
        )
    down = [r.ungradable for _, _, r in judged if (r.ungradable or "").startswith("SandboxError")]
    if down:
        raise SandboxError(
            f"{len(down)} of {len(judged)} samples could not be judged ({down[0]}); run the same "
            "command again to judge them without generating again"
        )


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
    infos = [_info(folder) for folder in folders]
    for folder, info in zip(folders, infos, strict=True):
        for key in ("model", "seed", "protocol"):
            if info[key] != infos[0][key]:
                raise ConfigError(
                    f"{folder}: {key} differs from that of {folders[0]}; merge shards of one evaluation"
                )
    _check_complete(infos)
    target.mkdir(parents=True, exist_ok=True)
    for name in (RESULTS, COMPLETIONS):  # COMPLETIONS last: it marks the evaluation as begun
        with replacing(target / name) as partial, partial.open("wb") as merged:
            for folder in folders:
                with (folder / name).open("rb") as part:
                    merged.writelines(line for line in part if line.endswith(b"\n"))
    write_json(target / RUN_INFO, infos[0] | {"shard": None})


def _info(folder: Path) -> dict[str, object]:
    try:
        return orjson.loads((folder / RUN_INFO).read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"{folder}: not a shard's folder (it has no {RUN_INFO})") from error


def _check_complete(infos: Sequence[dict[str, object]]) -> None:
    shards = sorted(str(info["shard"]) for info in infos)
    of = shards[0].partition("/")[2] or "1"
    expected = sorted(f"{number}/{of}" for number in range(int(of)))
    if shards != expected:
        raise ConfigError(
            f"--merge: the folders hold {', '.join(shards)}; expected {', '.join(expected)}"
        )
