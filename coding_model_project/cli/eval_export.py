"""The `eval export` command: results in other tools' formats."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

HELP = """Write a model's evaluations in another tool's format.

\b
    model-index  results for a model card (YAML): put them into the front matter of its README.md, and
                 the Hugging Face Hub shows them. Several runs of one data set and protocol are seeds;
                 the value is their mean
    inspect      logs of all samples for `inspect view`, one per run and data set. Inspect lists the
                 logs of a folder, and opens a single .json or .eval file; only .eval needs
                 `pip install inspect-ai`

\b
    python -m coding_model_project eval export outputs/eval/grpo --name tiny-grpo
    python -m coding_model_project eval export outputs/eval/grpo_seed* --out model-index.yaml
    python -m coding_model_project eval export outputs/eval/grpo --format inspect --out logs
"""


class Form(StrEnum):
    """Another tool's format of results."""

    model_index = "model-index"
    inspect = "inspect"


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Evaluations of a model.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name the model. Default: the last part of its path."),
    ] = None,
    format: Annotated[
        Form, typer.Option("--format", help="Write results in this format.")
    ] = Form.model_index,
    out: Annotated[
        Path | None, typer.Option(help="Write to this path. Default: standard output.")
    ] = None,
) -> None:
    if format is Form.inspect:
        return _inspect(runs, name, out)
    import yaml

    from coding_model_project.evaluation.model_index import model_index

    text = yaml.safe_dump(model_index(runs, name), sort_keys=False, allow_unicode=True)
    if out is None:
        sys.stdout.write(text)
        return None
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    return None


def _inspect(runs: list[Path], name: str | None, out: Path | None) -> None:
    from coding_model_project.errors import ConfigError
    from coding_model_project.evaluation.inspect_log import inspect_logs, write_logs

    if out is None:
        raise ConfigError("eval export --format inspect needs --out FOLDER, FILE.json or FILE.eval")
    for path in write_logs(inspect_logs(runs, name), out):
        print(f"written to {path}")
