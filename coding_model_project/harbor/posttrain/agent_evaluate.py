"""The agent's evaluate.py: scores a model on visible problems. The verifier never runs this."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from coding_model_project.errors import CodingModelError
from coding_model_project.harbor.posttrain.verifier.scoring import DATASET, score
from coding_model_project.harbor.posttrain.verifier.submission import Unfit, assemble, open_model


def main(folder: Path) -> None:
    """Evaluate, print the result as JSON and end the process.

    Args:
        folder: the agent's folder, with templates/ and task_context/.
    """
    settings = json.loads((folder / "task_context" / "settings.json").read_text())
    parser = argparse.ArgumentParser(description="Score a model on validation problems.")
    parser.add_argument("--model-path", type=Path, default=folder / "final_model")
    parser.add_argument(
        "--problems", type=Path, default=folder / "task_context" / "validation.jsonl"
    )
    parser.add_argument("--limit", type=int, default=None, help="use only the first N problems")
    parser.add_argument("--json-output-file", type=Path, default=None)
    given = parser.parse_args()
    if not given.problems.is_file():
        parser.error(f"{given.problems}: no such file; name problems with --problems")
    template = (folder / "templates" / settings["template"]).read_text()
    with tempfile.TemporaryDirectory(prefix="evaluate-") as work:
        try:
            base = Path(settings["base"])
            submitted = open_model(given.model_path)
            model = assemble(submitted, base, template, settings["stop"], Path(work, "model"))
            metrics = score(
                model,
                given.problems,
                Path(work, "evaluation"),
                settings["asked"],
                say=lambda text: print(text, file=sys.stderr),  # noqa: T201
                limit=given.limit,
            )
        except (CodingModelError, Unfit) as error:
            sys.exit(f"evaluate.py: {error}")
    text = json.dumps(metrics[DATASET], indent=1)
    if given.json_output_file is not None:
        given.json_output_file.write_text(text + "\n")
    print(text)  # noqa: T201
    sys.exit(0)
