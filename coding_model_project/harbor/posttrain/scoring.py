"""A model's score on problems by this package's evaluation, and the agent's evaluate.py.

The verifier never runs `main`, which scores a model on the problems that the agent may see.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from coding_model_project.errors import CodingModelError
from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.settings import Settings, simple_backend
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor.posttrain.submission import Unfit, assemble, open_model
from coding_model_project.sandbox.sandbox_config import SandboxConfig

DATASET = "problems"


def score(
    model: Path,
    problems: Path,
    out: Path,
    asked: Mapping[str, Any],
    *,
    say: Callable[[str], None],
    limit: int | None = None,
) -> dict[str, Any]:
    """Evaluate a model greedily.

    Args:
        asked: a task's settings for asking a model: prompt, max_tokens, and engine (`transformers` or
            `vllm`).
        limit: most problems, from the first on; None for all.

    Returns:
        The evaluation's metrics, by data set.

    Raises:
        CodingModelError: the evaluation failed, so there is no score.
    """
    sandbox = SandboxConfig()
    evaluation = EvaluationConfig(
        model=str(model),
        datasets=[f"{DATASET}={problems}"],
        protocol="greedy",
        max_tokens=asked["max_tokens"],
        limit=limit,
    )
    settings = Settings.of(
        evaluation,
        run_dir=out,
        seed=1,
        prompt=PromptStyle(asked["prompt"]),
        sandbox=sandbox,
        force=False,
    )
    backend: Backend
    if asked["engine"] == "transformers":
        from coding_model_project.evaluation.backends import transformers_backend

        backend = transformers_backend.TransformersBackend(str(model))
    else:
        backend = simple_backend(evaluation, seed=1, on_cpu=False)
    recorded = {"run_dir": str(out), "seed": 1, "prompt": asked["prompt"]}
    parts = {"sandbox": asdict(sandbox), "evaluation": asdict(evaluation)}
    return evaluate(
        settings,
        backend,
        config=OmegaConf.create({"coding": {**recorded, **parts}}),
        command=["harbor", "posttrain", "verifier"],
        say=say,
    )


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
