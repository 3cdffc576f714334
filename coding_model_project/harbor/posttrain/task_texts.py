"""The texts of a post-training task: instruction, images, scripts and chat templates."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from coding_model_project.harbor.posttrain.benchmarks import BaseModel, Benchmark
from coding_model_project.harbor.rooms.image import PACKAGES_LABEL

WORKSPACE, BASE, ARTIFACTS = "/app", "/models/base", "/logs/artifacts"
TIMER = f"{ARTIFACTS}/timer"
CPU_IMAGE = "python:3.11-slim"
GPU_IMAGE = "nvidia/cuda:12.9.1-devel-ubuntu24.04"

START_TIMER = f"mkdir -p {TIMER} && (test -s {TIMER}/started_at || date +%s > {TIMER}/started_at)"
"""Health check: runs when the environment is up, just before the agent."""
STOP_TIMER = f"mkdir -p {TIMER} && date +%s > {TIMER}/ended_at"
"""Runs after the agent has ended."""

_NEEDED = (
    "torch", "transformers", "safetensors", "numpy", "scipy", "pyarrow", "orjson",
    "omegaconf", "hydra-core", "pydantic", "pyyaml", "psutil", "httpx", "huggingface_hub", "jinja2",
    "rich", "stamina", "typer", "tomli-w", "fsspec", "duckdb", "math-verify", "emoji",
    "langdetect", "nltk", "syllapy",
)  # fmt: skip


def text(name: str) -> str:
    """Return a file of the folder `texts`."""
    return files("coding_model_project.harbor.posttrain").joinpath("texts", name).read_text("utf-8")


_SEEN = """problems
  that you may see: `python3 evaluate.py --model-path final_model --limit 50`."""
_BRING = """problems
  of your own, in the form that `task_context/README.md` describes:
  `python3 evaluate.py --problems FILE --model-path final_model`."""


def instruction(
    asked: Benchmark, model: BaseModel, hours: float, context: str, *, has_validation: bool
) -> str:
    """Return instruction.md.

    Args:
        has_validation: evaluate.py has problems to score models on.
    """
    return text("instruction.md").format(
        model=model.name,
        title=asked.title,
        base=BASE,
        workspace=WORKSPACE,
        hours=f"{hours:g}",
        template=model.template,
        context=context,
        seen=_SEEN if has_validation else _BRING,
        max_tokens=min(asked.max_tokens, model.longest_answer),
        judged=asked.judged,
    )


def dockerfile(model: BaseModel, copies: str, *, package_at: str, embeds_base: bool) -> str:
    """Return the Dockerfile of the agent's image, or of the verifier's.

    Args:
        copies: the image's own COPY lines, and its working directory.
        package_at: the folder of this package in the image.
        embeds_base: the base model is beside the Dockerfile.
    """
    needed = " ".join(_NEEDED) + (" vllm" if model.gpus else "")
    install = f"pip install --no-cache-dir {needed}"
    if model.gpus:
        first = (
            f"FROM {GPU_IMAGE}\n"
            "RUN apt-get update && apt-get install -y --no-install-recommends "
            "python3 python3-dev python3-pip git curl build-essential \\\n"
            "    && rm -rf /var/lib/apt/lists/* && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED\n"
            f"RUN {install}\n"
        )
    else:
        have = "from importlib.util import find_spec as f; exit(not (f('torch') and f('transformers')))"
        first = (
            f"FROM {CPU_IMAGE}\n"
            "# A room of coding_model_project has its modules mounted; elsewhere a label does nothing.\n"
            f"LABEL {PACKAGES_LABEL}=installed\n"
            f'RUN python3 -c "{have}" \\\n'
            f"    || {install} --extra-index-url https://download.pytorch.org/whl/cpu\n"
        )
    package = (
        "COPY package.tar.gz /opt/package.tar.gz\n"
        f"RUN mkdir -p {package_at} && tar -xzf /opt/package.tar.gz -C {package_at} "
        f"&& python3 -m compileall -q --invalidation-mode unchecked-hash {package_at}\n"
    )
    fetch = f"RUN hf download {model.hub} --local-dir {BASE}\n"
    base = f"COPY base {BASE}/\n" if embeds_base else fetch
    return first + package + base + copies


AGENT_COPIES = f"""\
COPY evaluate.py timer.sh {WORKSPACE}/
COPY templates {WORKSPACE}/templates
COPY task_context {WORKSPACE}/task_context
WORKDIR {WORKSPACE}
"""
VERIFIER_COPIES = """\
COPY test.sh settings.json problems.jsonl allowed.jsonl siblings.json /tests/
COPY templates /tests/templates
WORKDIR /tests
"""

EVALUATE = """\
\"\"\"Scores a model as the benchmark is scored, on problems that you may see: see --help.\"\"\"

import sys
from pathlib import Path

sys.path.insert(0, "/opt/package")

from coding_model_project.harbor.posttrain.scoring import main  # noqa: E402

if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
"""


def timer(hours: float) -> str:
    """Return timer.sh."""
    return text("timer.sh").format(timer=TIMER, seconds=round(hours * 3600))


def solve(steps: int) -> str:
    """Return the tiny task's solve.sh."""
    return text("solve.sh").format(workspace=WORKSPACE, base=BASE, steps=steps)


class Template(NamedTuple):
    """A chat template."""

    file: str
    stop: str
    """The text that ends an answer."""


_CHATML = Template("chatml.jinja", "<|im_end|>")
TEMPLATES = {
    "qwen3.jinja": _CHATML,
    "smollm3.jinja": _CHATML,
    "gemma3.jinja": Template("gemma.jinja", "<end_of_turn>"),
    "tiny.jinja": _CHATML,
}
"""Chat templates by their files' names in a task."""
