"""A model's score on the task's problems, with its interval, by this package's evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from coding_model_project.evaluation.backends.generation import Backend
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.settings import Settings, simple_backend
from coding_model_project.grading.prompts import PromptStyle
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
    recorded = {"run_dir": str(out), "seed": 1, "prompt": asked["prompt"]}
    parts = {"sandbox": asdict(sandbox), "evaluation": asdict(evaluation)}
    return evaluate(
        settings,
        _backend(evaluation, str(model), asked["engine"]),
        config=OmegaConf.create({"coding": {**recorded, **parts}}),
        command=["harbor", "posttrain", "verifier"],
        say=say,
    )


def _backend(config: EvaluationConfig, model: str, engine: str) -> Backend:
    if engine == "transformers":
        from coding_model_project.evaluation.backends.transformers_backend import (
            TransformersBackend,
        )

        return TransformersBackend(model)
    return simple_backend(config, seed=1, on_cpu=False)
