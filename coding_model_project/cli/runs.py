"""The `runs` command group: list, show, watch, stop and repeat runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_model_project.cli import options
from coding_model_project.cli.commands import Commands, Group
from coding_model_project.cli.common import local_runs, print_table, warn
from coding_model_project.config_key import option
from coding_model_project.errors import ConfigError

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

Run = Annotated[
    Path, typer.Argument(help="A run's folder, a folder of runs, or the URL of mirrored runs.")
]
Root = Annotated[Path, typer.Option(help="List the runs below this folder or URL.")]
N_NAMED = 5


@app.callback(invoke_without_command=True)
def list_runs(context: typer.Context, root: Root = Path("outputs")) -> None:
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
def show(run: Run) -> None:
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


@app.command()
def watch(
    run: Run,
    every: options.Every = 1.0,
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
    run: Run,
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
def stop(run: Run) -> None:
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
        print(
            f"{shown(path)} holds {named}; using the newest: {shown(newest.path)}",
            file=sys.stderr,
        )
    return newest


def _named(runs: list[RunFolder], shown: Callable[[Path], str]) -> str:
    """Return the number of runs and the names of the first."""
    more = ", …" if len(runs) > N_NAMED else ""
    return f"{len(runs)} runs: {', '.join(shown(run.path) for run in runs[:N_NAMED])}{more}"
