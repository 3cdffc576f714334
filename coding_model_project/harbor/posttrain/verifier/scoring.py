"""A model's score on the task's problems, with its interval, by this package's evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.settings import simple_backend

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
    config = resolve_name("coding_model_project.configs.typed:new_config")(
        {"run_dir": str(out), "seed": 1, "prompt": asked["prompt"]},
        {
            "model": str(model),
            "datasets": [f"{DATASET}={problems}"],
            "protocol": "greedy",
            "max_tokens": asked["max_tokens"],
            "limit": limit,
        },
    )
    coding = resolve_name("coding_model_project.configs.typed:coding_of")(config)
    settings = resolve_name("coding_model_project.configs.typed:evaluation_settings")(coding)
    backend = _backend(coding.evaluation, str(model), asked["engine"])
    return evaluate(
        settings, backend, config=config, command=["harbor", "posttrain", "verifier"], say=say
    )


def _backend(config: EvaluationConfig, model: str, engine: str) -> Backend:
    if engine == "transformers":
        from coding_model_project.evaluation.backends.transformers_backend import (
            TransformersBackend,
        )

        return TransformersBackend(model)
    return simple_backend(config, seed=1, on_cpu=False)
