"""An evaluation from its configuration to its outputs, in a run's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
from omegaconf import DictConfig

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.evaluation import outputs
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.bar import evaluation_bar
from coding_model_project.evaluation.journal import Journal, read_rows, storage_errors
from coding_model_project.evaluation.plan import DataSet, Sample, load_datasets, samples
from coding_model_project.evaluation.protocols import BUDGET, EvalProtocol
from coding_model_project.evaluation.repair_rounds import Episodes
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    METRICS,
    RESULTS,
    RUN_INFO,
    Generated,
    Metrics,
    Result,
    refuse_another,
    with_completions,
)
from coding_model_project.evaluation.runner import Known, Runner, read_known
from coding_model_project.evaluation.settings import Settings
from coding_model_project.evaluation.tables import budget_table, metrics_table, months_table
from coding_model_project.grading.judge import OpenJudge, make_sandbox, open_judge
from coding_model_project.grading.observation import can_repair
from coding_model_project.runs.folder import (
    RunFolder,
    State,
    sole_writer,
    write_json,
)
from coding_model_project.runs.inputs import inputs_of
from coding_model_project.runs.lease import Heartbeat
from coding_model_project.runs.mirror.mirroring import mirrored
from coding_model_project.runs.refusal import refuse_changes
from coding_model_project.runs.starting import end_attempt, start_attempt

RECIPE = "baseline"
Say = Callable[[str], None]


def evaluate(
    settings: Settings,
    backend: Backend,
    *,
    config: DictConfig,
    command: Sequence[str],
    say: Say,
    opens: OpenJudge = open_judge,
) -> Metrics:
    """Evaluate a model, or go on with what an earlier attempt has left.

    Args:
        backend: what generates; started only if something is missing.
        config: where the settings come from, for the record.
        command: what started this, for the record.
        say: told a line now and then.
        opens: opens the judge, only if something is missing.

    Returns:
        The content of metrics.json.

    Raises:
        ConfigError: a key, a data set or the folder does not work out; before anything is generated.
        DataError: a file is damaged; names it and the line.
        GenerationError, SandboxError, StorageError, ClusterError: infrastructure failed. All that was
            made is kept, and the same command goes on.
    """
    make_sandbox(settings.sandbox)  # is it known?
    run = RunFolder(settings.run_dir)
    with sole_writer(run.path, "evaluation"), mirrored(config, run.path, say) as start_mirror:
        datasets = load_datasets(
            settings.datasets,
            data_dir=settings.data_dir,
            limit=settings.limit,
            max_tests=settings.max_tests,
            window=settings.window,
        )
        versions = {f"data set {data.name}": data.version for data in datasets}
        inputs = {**inputs_of(config, "coding.evaluation.model"), **versions}
        if run.attempts() and run.state is State.finished and not settings.force:
            refuse_changes(run, config, inputs)
            start_mirror()
            metrics = orjson.loads((run.path / METRICS).read_bytes())
            say(metrics_table(metrics, settings.protocol.ks))
            say(f"{run.path} has finished; for another evaluation choose a new folder")
            return metrics
        _refuse_nothing_to_repair(datasets, settings.protocol)
        _say_datasets(datasets, say)
        say(_described(settings, backend))
        attempt = start_attempt(
            run.path,
            config,
            recipe=RECIPE,
            inputs=inputs,
            command=list(command),
            force=settings.force,
            say=say,
        )
        start_mirror()
        try:
            with Heartbeat(run.log_dir(attempt.number)):
                metrics = asyncio.run(_evaluate(settings, datasets, backend, opens, say))
        except BaseException as error:
            end_attempt(run.path, attempt, error)
            raise
        end_attempt(run.path, attempt)
        with storage_errors(run.path):
            outputs.write_report(run.path)  # which says how the run ended
    say(f"written to {run.path}")
    return metrics


async def _evaluate(
    settings: Settings,
    datasets: Sequence[DataSet],
    backend: Backend,
    opens: OpenJudge,
    say: Say,
) -> Metrics:
    folder, protocol = settings.run_dir, settings.protocol
    planned = list(
        samples(datasets, n=protocol.sampling.n, seed=settings.seed, shard=settings.shard)
    )
    if not planned:
        raise ConfigError(f"shard {settings.shard.number}/{settings.shard.of}: no problem is in it")
    with (
        Journal(folder / COMPLETIONS, Generated) as completions,
        Journal(folder / RESULTS, Result) as results,
    ):
        info = _run_info(settings, datasets, backend)
        _refuse_another(folder / RUN_INFO, info)
        write_json(folder / RUN_INFO, info)
        known = read_known(completions, results, planned)
        n_known = len(known.generated), len(known.judged)
        if any(n_known):
            say(f"going on with {n_known[0]} completions and {n_known[1]} verdicts")
        if n_known[1] < len(planned):
            await _run(settings, planned, backend, opens, known, completions, results, say)
    by_key = with_completions(folder, read_rows(folder / RESULTS, Result))
    judged = [(sample, *by_key[sample.key]) for sample in planned]
    with storage_errors(folder):
        results = [one[2] for one in judged]
        metrics = outputs.write_metrics(folder, results, datasets, protocol, settings.cutoff)
        outputs.write_rollouts(folder, judged, protocol)
        outputs.write_qa_logs(folder, judged, protocol)
        outputs.write_summary(folder, metrics, judged)
    if settings.wandb:
        outputs.log_to_wandb(folder, metrics, judged, protocol, info)
    say(metrics_table(metrics, protocol.ks))
    for table in months_table(metrics):
        say(table)
    for note in outputs.truncation_notes(metrics, protocol):
        say(f"note: {note}")
    if protocol.name == BUDGET.name:
        say(budget_table(metrics))
    _refuse_outage(judged)
    return metrics


async def _run(
    settings: Settings,
    planned: Sequence[Sample],
    backend: Backend,
    opens: OpenJudge,
    known: Known,
    completions: Journal[Generated],
    results: Journal[Result],
    say: Say,
) -> None:
    n_known = len(known.generated), len(known.judged)
    opened = opens(
        settings.sandbox,
        style=settings.protocol.prompt,
        stop_early=settings.protocol.stop_early,
        stop_on_timeout=True,
    )
    async with AsyncExitStack() as stack:
        judge = await stack.enter_async_context(opened)
        if n_known[0] < len(planned):
            await stack.enter_async_context(backend)
            for note in await backend.check(settings.protocol.sampling):
                say(f"note: {note}")
        progress = stack.enter_context(evaluation_bar(len(planned), *n_known))
        runner = Runner(
            episodes=Episodes(backend, judge.public, settings.protocol),
            concurrency=backend.concurrency,
            grader=judge.hidden,
            protocol=settings.protocol,
            completions=completions,
            results=results,
            known=known,
            progress=progress,
        )
        await runner.run(planned)


def _refuse_nothing_to_repair(datasets: Sequence[DataSet], protocol: EvalProtocol) -> None:
    """Raises:
    ConfigError: repairs are asked for, and no problem has a test that may be shown.
    """
    if protocol.repair_rounds and not any(
        can_repair(p) for data in datasets for p in data.problems
    ):
        raise ConfigError(
            "coding.evaluation.repair_rounds: no problem has a public test, so nothing can be told; "
            "leave it at 0"
        )


def _say_datasets(datasets: Sequence[DataSet], say: Say) -> None:
    for data in datasets:
        aside = f", {data.n_set_aside} rows set aside" if data.n_set_aside else ""
        say(f"{data.name}: {len(data.problems)} problems{aside} ({data.origin})")
        for note in data.notes:
            say(f"note: {note}")


def _described(settings: Settings, backend: Backend) -> str:
    """What is asked how, in a line: the keys that a number depends on most."""
    protocol, sampling = settings.protocol, settings.protocol.sampling
    more = {"system_prompt": protocol.system_prompt, **sampling.optional()}
    said = "".join(
        f"{name}={repr(value)[:60]} " for name, value in more.items() if value not in (None, "")
    )
    return (
        f"{settings.model} ({backend.identity}): protocol={protocol.name} n={sampling.n} "
        f"temperature={sampling.temperature:g} prompt={protocol.prompt} {said}"
        f"max_tokens={sampling.max_tokens}"
    )


def _run_info(settings: Settings, datasets: Sequence[DataSet], backend: Backend) -> Metrics:
    """The content of run_info.json."""
    versions = {data.name: data.version for data in datasets}
    shard = settings.shard
    return {
        "model": settings.model,
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
        "profile": settings.profile,
        "cutoff": settings.cutoff,
        "backend": backend.identity,
        "repeatable": backend.repeatable,
        "shard": None if shard.of == 1 else f"{shard.number}/{shard.of}",
    }


def _refuse_another(path: Path, info: Mapping[str, Any]) -> None:
    """Refuse to resume what was generated in another way or of other problems; see `refuse_another`."""
    if path.exists() and path.with_name(COMPLETIONS).stat().st_size:
        kept = {key: info[key] for key in ("model", "seed", "protocol", "shard")}
        refuse_another(path.parent, orjson.loads(path.read_bytes()), kept)


def _refuse_outage(judged: Sequence[outputs.Judged]) -> None:
    """An evaluation with samples that an outage left without a verdict is not finished.

    Raises:
        SandboxError: there are some; the same command judges them again.
        ConfigError: the model could be asked nothing at all.
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
            "command again to judge them, nothing is generated anew"
        )
