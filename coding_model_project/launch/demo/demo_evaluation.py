"""Evaluates several models of one architecture on the held-out tasks, greedily and by sampling.

python -m coding_model_project.launch.demo.demo_evaluation DATA_DIR OUT.json NAME=MODEL [NAME=MODEL ...]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from coding_model_project.data.problems import read_problems
from coding_model_project.errors import UngradableError
from coding_model_project.evaluation.backends.generation import Sampling, VllmGenerator
from coding_model_project.grading.batch import judge_completions
from coding_model_project.grading.judge import open_judge
from coding_model_project.grading.prompts import PromptStyle, solve_messages
from coding_model_project.launch.device import prepare_environment
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Problem, Verdict

N_PROBLEMS = 200
N_SAMPLES = 8
MAX_TOKENS = 96


def main(data_dir: Path, out: Path, models: dict[str, str]) -> None:
    problems = [p for p in read_problems(data_dir / "problems.jsonl") if p.split == "test"][
        :N_PROBLEMS
    ]
    prompts = [solve_messages(problem, style=PromptStyle.bare) for problem in problems]
    prepare_environment("cpu")
    generator = VllmGenerator(next(iter(models.values())), max_model_len=192, dtype="float32")
    result: dict[str, Any] = {
        "problems": [p.id for p in problems],
        "levels": [p.difficulty for p in problems],
        "models": {},
    }
    for name, model in models.items():
        generator.load(model)
        scores: dict[str, Any] = {"model": model}
        for mode, sampling in (
            ("greedy", Sampling(max_tokens=MAX_TOKENS)),
            ("sampled", Sampling(n=N_SAMPLES, temperature=1.0, max_tokens=MAX_TOKENS)),
        ):
            completions = generator.generate(prompts, sampling)
            texts = [[c.text for c in group] for group in completions]
            started = time.monotonic()
            rates, errors = asyncio.run(_judge(problems, texts))
            scores[mode] = {
                "per_problem": rates,
                "errors": errors,
                "tokens": sum(c.n_tokens for group in completions for c in group),
                "judge_s": round(time.monotonic() - started, 2),
            }
        print(
            f"{name}: greedy {_mean(scores['greedy']['per_problem']):.3f}, "
            f"sampled {_mean(scores['sampled']['per_problem']):.3f}",
            flush=True,
        )
        result["models"][name] = scores
    out.write_text(json.dumps(result) + "\n")


async def _judge(
    problems: list[Problem], texts: list[list[str]]
) -> tuple[list[float], dict[str, float]]:
    """Accepted share per problem, and the share of each error group over all samples."""
    async with open_judge(SandboxConfig(), style=PromptStyle.bare, stop_early=True) as judge:
        outcomes = await judge_completions(problems, texts, judge.hidden)
    graded = [[_graded(outcome) for outcome in group] for group in outcomes]
    flat = [verdict for group in graded for verdict in group]
    errors: dict[str, float] = {}
    for verdict in flat:
        error = verdict.error.group if verdict.error else "accepted"
        errors[str(error)] = errors.get(str(error), 0.0) + 1 / len(flat)
    return [_mean([float(v.passed) for v in group]) for group in graded], errors


def _graded(outcome: Verdict | UngradableError) -> Verdict:
    """An outage is never a score: it ends the evaluation."""
    if isinstance(outcome, UngradableError):
        raise outcome
    return outcome


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        dict(argument.split("=", 1) for argument in sys.argv[3:]),
    )
