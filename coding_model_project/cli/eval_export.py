"""`eval export`: results in other tools' forms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

HELP = """Write a model's evaluations as the `model-index` of its model card (YAML).

Put it into the front matter of the card's README.md; the Hugging Face hub shows the values. Several
runs of one data set and protocol are seeds: their mean is the value.

\b
    python -m coding_model_project eval export outputs/eval/grpo --name tiny-grpo
    python -m coding_model_project eval export outputs/eval/grpo_seed* --out model-index.yaml
"""


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Evaluations of a model.")],
    name: Annotated[
        str | None,
        typer.Option(help="Call the model this; by default the last part of its path."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write here, not to standard output.")] = None,
) -> None:
    import yaml

    from coding_model_project.evaluation.model_index import model_index

    text = yaml.safe_dump(model_index(runs, name), sort_keys=False, allow_unicode=True)
    if out is None:
        sys.stdout.write(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
