"""The `eval rejudge` command: judge stored completions with the current grader."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_model_project.cli.common import (
    AsJson,
    DataDir,
    Datasets,
    MinTier,
    ProblemsFile,
    SandboxUrls,
    Workers,
    existing_file,
    warn,
)
from coding_model_project.errors import ConfigError
from coding_model_project.isolation.confine import Tier

if TYPE_CHECKING:
    from coding_model_project.evaluation.rejudging.changes import Rejudged

HELP = """Judge stored completions with the current grader, without generating; print changes and causes.

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

_SHOWN = 3
"""Maximum changes printed per cause."""


def rejudge(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of evaluations and training runs."),
    ],
    dataset: Datasets = None,
    problems: ProblemsFile = None,
    data_dir: DataDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print changes without writing them.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Use the current problems even if they have changed."),
    ] = False,
    workers: Workers = None,
    min_tier: MinTier = Tier.seccomp,
    sandbox_url: SandboxUrls = None,
    as_json: AsJson = False,
) -> None:
    from coding_model_project.evaluation.rejudging.evaluations import Given, rejudge_evaluation
    from coding_model_project.evaluation.rejudging.rollouts import rejudge_rollouts
    from coding_model_project.evaluation.results import RUN_INFO
    from coding_model_project.sandbox.sandbox_config import SandboxConfig

    where: dict[str, Any] = {"name": "fusion", "urls": sandbox_url} if sandbox_url else {}
    given = Given(
        sandbox=SandboxConfig(workers=workers, min_tier=min_tier, **where),
        datasets=tuple(dataset or ()),
        data_dir=data_dir,
        force=force,
        dry_run=dry_run,
    )
    for folder in runs:
        if not ((folder / RUN_INFO).is_file() or any(folder.glob("rollouts*.jsonl*"))):
            raise ConfigError(
                f"{folder}: no stored completions; expected an evaluation ({RUN_INFO}) or a training run "
                "with rollouts (rollouts.jsonl)"
            )
    own_problems = existing_file(problems, "--problems") if problems else None
    found = []
    for folder in runs:
        if (folder / RUN_INFO).is_file():
            one = rejudge_evaluation(folder, given, say=warn)
        else:
            one = rejudge_rollouts(folder, given, problems=own_problems)
        found.append(one)
        if not as_json:
            _print(one)
    if as_json:
        print(json.dumps([asdict(one) for one in found], default=str))


def _print(one: Rejudged) -> None:
    from rich.console import Console
    from rich.table import Table

    from coding_model_project.evaluation.rejudging.changes import shown

    console = Console(highlight=False)
    print(
        f"{one.path}: {one.samples:,} samples judged by grader {one.grader_after} (before: "
        f"{one.grader_before}); {len(one.changes):,} have another verdict"
    )
    for reason, n in one.skipped.items():
        print(f"not judged: {n:,} {reason}")
    for note in one.notes:
        print(f"note: {note}")
    rates = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("data set", "judged", "accepted before", "accepted now"):
        rates.add_column(name, justify="left" if name == "data set" else "right")
    for data in one.datasets:
        total = max(1, data.judged)
        rates.add_row(
            data.dataset,
            f"{data.judged:,}",
            f"{data.accepted_before / total:.1%}",
            f"{data.accepted_after / total:.1%}",
        )
    console.print(rates)
    if not one.changes:
        return
    causes = Table(box=None, header_style="bold", pad_edge=False)
    causes.add_column("cause")
    for name in ("gained", "lost", "failed otherwise"):
        causes.add_column(name, justify="right")
    causes.add_column("meaning")
    for cause, gained, lost, other in one.causes():
        causes.add_row(str(cause), f"{gained:,}", f"{lost:,}", f"{other:,}", cause.meaning)
    console.print(causes)
    for line in shown(one.changes, _SHOWN):
        print(line)
