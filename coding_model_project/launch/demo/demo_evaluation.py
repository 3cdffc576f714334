"""Evaluations of several models of one architecture by one vLLM engine, greedy and sampled.

python -m coding_model_project.launch.demo.demo_evaluation PROBLEMS OUT NAME=MODEL [NAME=MODEL ...]

OUT/{greedy,sampled}/NAME are ordinary evaluation folders: resumable, and comparable by `eval compare`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from omegaconf import DictConfig

from coding_model_project.configs.typed import coding_of, evaluation_settings, new_config
from coding_model_project.evaluation.backends.vllm_backend import VllmBackend, VllmEngine
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.protocols import GREEDY, SAMPLED
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.launch.device import prepare_environment
from coding_model_project.reports import write_report
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.inputs import inputs_of
from coding_model_project.runs.provenance import command_line

DATASET = "held_out"
PROTOCOLS = {GREEDY.name: {}, SAMPLED.name: {"n": 8, "temperature": 1.0, "top_p": 1.0}}
"""Each protocol's overrides."""
_MODEL_KEY = "coding.evaluation.model"


def main(problems: Path, out: Path, models: dict[str, str]) -> None:
    """Evaluate each model by each protocol; skip finished evaluations."""
    prepare_environment("cpu")
    engine = VllmEngine(max_model_len=192, dtype="float32", on_cpu=True)
    for name, model in models.items():
        rates = []
        for protocol in PROTOCOLS:
            config = _config(problems, out / protocol / name, model, protocol)
            _forget_another_model(config)
            metrics = evaluate(
                evaluation_settings(coding_of(config)),
                VllmBackend(model, engine),
                config=config,
                command=command_line(),
                say=lambda _: None,  # the demo's table comes at its end
                report=write_report,
            )
            rates.append(f"{protocol} {metrics[DATASET]['accepted']:.3f}")
        print(f"{name}: {', '.join(rates)}", flush=True)


def _config(problems: Path, folder: Path, model: str, protocol: str) -> DictConfig:
    return new_config(
        {"run_dir": str(folder), "prompt": PromptStyle.bare},
        {
            "model": model,
            "datasets": [f"{DATASET}={problems}"],
            "protocol": protocol,
            **PROTOCOLS[protocol],
            "max_tokens": 96,
            "stop_early": True,
        },
    )


def _forget_another_model(config: DictConfig) -> None:
    """Delete an evaluation of an earlier model from the same folder."""
    run = RunFolder(Path(config.coding.run_dir))
    if run.run_json.exists() and not inputs_of(config, _MODEL_KEY).items() <= run.inputs().items():
        shutil.rmtree(run.path)


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        dict(argument.split("=", 1) for argument in sys.argv[3:]),
    )
