"""The `runs` group: list, show, follow, stop and repeat runs; `watch`, which evaluates their checkpoints;
and `report`, the page about them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands, Group
from coding_model_project.cli.options import local_runs, print_table, publishes, say, warn
from coding_model_project.config_key import Option, argument, option
from coding_model_project.errors import ConfigError
from coding_model_project.extras import extra

if TYPE_CHECKING:
    from coding_model_project.runs.folder import RunFolder


class _PlaceFirst(Group):
    """A group that takes a folder or URL in place of a command as --root: `runs s3://bucket/prefix`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if first not in self.commands and ("://" in first or (first and Path(first).is_dir())):
            args = ["--root", *args]
        return super().parse_args(ctx, args)


app = Commands(cls=_PlaceFirst, help="List runs; show, watch, stop or repeat one.")

_RUN = Option("A run's folder, a folder of runs, or the URL of mirrored runs.", is_argument=True)
N_NAMED = 5


@app.callback(invoke_without_command=True)
def list_runs(
    context: typer.Context,
    root: Path = option(Path("outputs"), "List the runs below this folder or URL."),
) -> None:
    """List all runs below a folder, newest first: state, step, results, age."""
    if context.invoked_subcommand:
        return
    from coding_model_project.runs.folder import find_runs
    from coding_model_project.runs.overview import duration, line

    with local_runs([root], light=True) as ([folder], shown):
        runs = find_runs(folder)
    if not runs:
        raise ConfigError(f"--root={root}: no runs below this folder")
    rows = []
    for run in runs:
        a = line(run)
        step = f"{a.step}/{a.steps}" if a.steps else f"{a.step}"
        rows.append((shown(run.path), a.recipe, a.state, step, a.result, duration(a.age_s)))
    print_table(("run", "recipe", "state", "step", "result", "age"), rows, left=6)


@app.command()
def show(run: Path = option(..., _RUN)) -> None:
    """Show a run's provenance, attempts, results and cost; for a folder of runs, the newest run's."""
    import json

    from coding_model_project.evaluation.evaluate import RECIPE
    from coding_model_project.evaluation.results import METRICS
    from coding_model_project.evaluation.tables import metrics_table
    from coding_model_project.runs.overview import duration, line, summarise

    with local_runs([run], light=True) as ([path], shown):
        folder = _newest(path, shown)
    origin, a = folder.provenance(), line(folder)
    git, hardware = origin["git"] or {}, origin["hardware"]
    evaluated = a.recipe == RECIPE
    of = f" of {a.steps}" if a.steps else ""
    at = "" if evaluated else f" step {a.step}{of},"
    print(f"{a.recipe}: {a.state},{at} last write {duration(a.age_s)} ago")
    print(f"command   {' '.join(origin['command'])}")
    dirty = " with changes (see patches/)" if git.get("dirty") else ""
    print(f"commit    {git.get('commit', 'unknown')[:12]}{dirty}")
    gpus = f", {len(hardware['gpus'])}× {hardware['gpus'][0]}" if hardware["gpus"] else ""
    print(
        f"host      {origin['host']}: {hardware['cores']} cores, "
        f"{hardware['memory_gb']:g} GB{gpus}; Python {origin['python']}"
    )
    print(f"seeds     {origin['seeds']}; grader version {origin['grader_version']}")
    for attempt in folder.attempts():
        ended = duration((attempt.ended or time.time()) - attempt.started)
        why = f": {attempt.error}" if attempt.error else ""
        print(f"attempt {attempt.number} {attempt.state} after {ended}{why}")
    if not evaluated:
        print(json.dumps(summarise(folder), indent=2))
    elif (metrics := folder.path / METRICS).exists():
        rates = json.loads(metrics.read_bytes())
        print(
            metrics_table(rates, sorted({int(k) for one in rates.values() for k in one["pass@k"]}))
        )


@app.command("watch")
def watch_run(
    run: Path = option(..., _RUN),
    every: float = option(1.0, options.EVERY),
) -> None:
    """Follow a run in the terminal until it ends; in a folder of runs, the newest one.

    Only reads the run's folder, so it does not affect the run.
    """
    from rich.live import Live

    from coding_model_project.runs.folder import State
    from coding_model_project.runs.overview import view

    with local_runs([run], every_s=every, light=True) as ([path], shown):
        folder = _newest(path, shown)
        folder.provenance()  # raises if the run is not readable
        with Live(view(folder), refresh_per_second=4) as live:
            while folder.state is State.running:
                time.sleep(every)
                live.update(view(folder))
            live.update(view(folder))


@app.command()
def rerun(
    run: Path = option(..., _RUN),
    out: Path = option(..., "Write the new run to this folder."),
) -> None:
    """Repeat the run that a folder records, in another folder.

    Needs only the folder, this package, and the data and model that the configuration names. If their
    contents have changed, the command refuses and prints the difference.
    SFT on a CPU gives identical numbers. GRPO gives the same data order but different samples: vLLM's
    batches depend on when requests arrive, and sampling depends on the batches.
    """
    from coding_model_project.runs.folder import refuse_url, runs_at
    from coding_model_project.runs.provenance import differences

    refuse_url("runs rerun", run)
    folder, *others = runs_at(run)
    if others:
        raise ConfigError(f"{run} holds {_named([folder, *others], str)}; pass one of them")
    recipe = folder.provenance()["recipe"]
    if changed := differences(folder.provenance()):
        warn(f"differs from the recorded run: {'; '.join(changed)}")
    command = [sys.executable, "-m", f"recipes.{recipe}"]
    command += [f"--config={folder.config.absolute()}", f"coding.run_dir={out.absolute()}"]
    raise SystemExit(subprocess.run(command, check=False).returncode)


@app.command()
def stop(run: Path = option(..., _RUN)) -> None:
    """Make a run save a checkpoint and end, from any machine that can write to its folder.

    Returns immediately; the run's own command resumes it. Exit code 1 if the run is not running.
    """
    from coding_model_project.runs.folder import RunFolder, ask_to_stop

    if not ask_to_stop(RunFolder(run)):
        print(f"{run}: not running")
        raise typer.Exit(1)
    print(f"{run}: will save a checkpoint and end after this step")


def _newest(path: Path, shown: Callable[[Path], str]) -> RunFolder:
    """Return the run at a path, or the newest one below it, and print which if there are several.

    Raises:
        ConfigError: there are no runs.
    """
    from coding_model_project.runs.folder import runs_at

    newest, *others = runs_at(path)
    if others:
        named = _named([newest, *others], shown)
        warn(f"{shown(path)} holds {named}; using the newest: {shown(newest.path)}")
    return newest


def _named(runs: list[RunFolder], shown: Callable[[Path], str]) -> str:
    """Return the number of runs and the names of the first."""
    more = ", …" if len(runs) > N_NAMED else ""
    return f"{len(runs)} runs: {', '.join(shown(run.path) for run in runs[:N_NAMED])}{more}"


# ── the `watch` command: evaluate checkpoints of training runs as they appear ─────────────────────


DEFAULT = "{python} -m coding_model_project eval run --mode simple --model {model} --out {out}"


def watch(
    globs: list[str] = argument(
        ...,
        "Runs, checkpoints or their URLs; a quoted glob ('outputs/grpo*') also finds new ones.",
        metavar="GLOB...",
    ),
    out: Path = option(
        Path("outputs/watch"), "Write the curve and all evaluations to this folder."
    ),
    arguments: str = option(
        "", "Add these options to `eval run`, such as --arguments='--dataset mbpp_reg --n 4'."
    ),
    command: str | None = option(
        None, "Evaluate with this command; {python}, {model}, {out} and {step} are substituted."
    ),
    devices: str | None = option(
        None, "Evaluate on these GPUs: 0,1 runs one evaluation per GPU, 0+1,2+3 one per pair."
    ),
    every: float = option(20.0, options.EVERY),
    once: bool = option(False, "Evaluate existing checkpoints, then end."),
    until_ended: bool = option(False, "End when no recipe's run is running."),
) -> None:
    """Evaluate each checkpoint once, as it appears, and draw the curve, until Ctrl-C.

    The same command resumes. Without --devices, one evaluation runs at a time. Writes OUT/curve.jsonl,
    and a folder and a log per evaluation; `report RUN` shows the curve.
    --command may run another tool (lm_eval, OLMES, a script) that writes its results into {out}.
    Exit code 3 if a checkpoint could not be evaluated.
    """
    from rich.console import Console

    from coding_model_project.evaluation.watch import Plan, view
    from coding_model_project.evaluation.watch import watch as watch_checkpoints
    from coding_model_project.isolation.processes import start_sentinel

    if command is not None and arguments:
        raise ConfigError(
            "--command and --arguments exclude each other; put the arguments into --command"
        )
    if devices is not None and not all(one.strip("+ ") for one in devices.split(",")):
        raise ConfigError(f"--devices={devices}: expected GPU numbers such as 0,1 or 0+1,2+3")
    plan = Plan(
        patterns=tuple(globs),
        out=out,
        command=command or f"{DEFAULT} {arguments}".strip(),
        devices=(None,)
        if devices is None
        else tuple(one.strip().replace("+", ",") for one in devices.split(",")),
        every_s=every,
        once=once,
        until_ended=until_ended,
    )
    start_sentinel()  # ends the evaluations' processes if this one is killed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    curve = watch_checkpoints(plan, say)
    Console(highlight=False).print(view(curve))


# ── the `report` command: an HTML page about one or more runs, or a live view of them ─────────────


_FOLLOW_S = 10.0
"""Seconds between polls of runs behind URLs."""
MOST_RUNS = 12
"""Maximum runs of one folder on a page; charts with more are unreadable."""


@publishes
def report(
    runs: list[Path] = argument(
        ..., "Folders of runs, folders that contain runs, or URLs of mirrored runs.", metavar="RUN"
    ),
    out: Path = option(Path("report.html"), "Write the page to this file."),
    budget_mb: float = option(16.0, "Include at most N MB of samples' text, uncompressed.", min=0),
    serve: bool = option(False, "Serve a live view of all samples to this machine's browsers."),
    port: int = option(0, options.FREE_PORT),
    follow: bool = option(False, "Show new data as it is written; with --serve."),
) -> None:
    """Write one self-contained HTML page with the curves, costs and samples of runs.

    A folder that contains runs stands for all runs below it, up to 12.

    With --serve no page is written: the printed address shows the runs and every sample, whatever
    their size, until Ctrl-C.
    """
    from coding_model_project.reports import write_report

    if follow and not serve:
        raise ConfigError("report: --follow needs --serve")
    with local_runs(runs, every_s=_FOLLOW_S if follow else None) as (folders, shown):
        chosen = _runs(folders, shown)
        if serve:
            _serve(chosen, port, follow=follow)
            return
        written = write_report(chosen, out, budget_bytes=int(budget_mb * 1e6))
    print(
        f"{written.path}: {written.page_bytes / 1e6:.1f} MB, "
        f"{written.n_shown:,} of {written.n_total:,} samples"
    )


def _runs(paths: Sequence[Path], shown: Callable[[Path], str]) -> list[RunFolder]:
    from coding_model_project.runs.folder import runs_at

    chosen = []
    for path in paths:
        found = runs_at(path)
        names = ", ".join(shown(run.path) for run in found[:MOST_RUNS])
        if len(found) > MOST_RUNS:
            raise ConfigError(
                f"{shown(path)} holds {len(found)} runs, and a page shows at most {MOST_RUNS}; "
                f"pass some of them: {names}, …"
            )
        if [run.path for run in found] != [path]:
            warn(f"{shown(path)} holds {names}")
        chosen += found
    return chosen


def _serve(runs: Sequence[RunFolder], port: int, *, follow: bool) -> None:
    """Serve until Ctrl-C.

    Raises:
        ConfigError: there are no samples and `follow` is false, or the port is taken.
    """
    import secrets

    with extra("serve"):
        from coding_model_project.reports.live import HOST, create_app
        from coding_model_project.server import listening
    from coding_model_project.reports.live import LiveRuns

    with listening.listen(HOST, port) as sock:
        live = LiveRuns(runs)
        n = live.index.n
        if not n and not follow:
            raise ConfigError(
                f"{', '.join(live.names)}: no recorded samples; add --follow to wait for them, "
                "or omit --serve to see the curves"
            )
        token = secrets.token_urlsafe()
        url = f"http://{HOST}:{sock.getsockname()[1]}/?token={token}"

        def started() -> None:
            print(f"{n:,} samples at {url}; stop with Ctrl-C", flush=True)

        with suppress(KeyboardInterrupt):
            listening.serve(create_app(live, token, follow=follow), nullcontext(), sock, started)
