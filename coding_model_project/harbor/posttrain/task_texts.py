"""The texts of a post-training task: instruction, images, scripts and chat templates."""

from __future__ import annotations

from coding_model_project.harbor.environment.image import PACKAGES_LABEL
from coding_model_project.harbor.posttrain.base_models import BaseModel
from coding_model_project.harbor.posttrain.benchmarks import Benchmark

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

_INSTRUCTION = """\
# Post-train {model} for {title}

The base model is in `{base}`. Train it so that it scores as high as possible on {title}, and save
your best model in `{workspace}/final_model`.

You have {hours} hours. `bash {workspace}/timer.sh` prints how much of them is left; the clock started
with you. When the time is over you are stopped, and what is in `final_model` counts.

## What is here

- `{workspace}/evaluate.py` scores a model as the benchmark is scored, with its 95% interval, on problems
  that you may see: `python3 evaluate.py --model-path final_model --limit 50`.
- `{workspace}/templates/{template}` is the chat template by which the model is asked, in training and
  at the end.
- `{workspace}/task_context/`: {context}

## How you are scored

One greedy answer to each test problem, of at most {max_tokens} tokens: {judged}. The score is the share
of problems solved. The test problems are not here.

## Rules

1. No test problem of {title}, and no answer to one, may be used for training, in whatever form.
2. Submit `{model}` trained further and no other model, nor a mixture with another one.
3. `final_model` holds data only: `.safetensors` weights with the base model's names and shapes,
   `config.json`, and tokenizer files as they are. Pickles, code, links and adapters that are not merged
   are refused. Configuration, tokenizer and chat template are taken from the base model.
4. All that you leave in `{workspace}` is read at the end. Leave your training data and scripts there.
   What cannot be read (an encrypted archive, a file of more than 512 MiB that is not safetensors)
   counts against you.

A submission that breaks a rule scores what the base model scores.
"""


def instruction(asked: Benchmark, model: BaseModel, hours: float, context: str) -> str:
    """Return instruction.md."""
    return _INSTRUCTION.format(
        model=model.name,
        title=asked.title,
        base=BASE,
        workspace=WORKSPACE,
        hours=f"{hours:g}",
        template=model.template,
        context=context,
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

from coding_model_project.harbor.posttrain.agent_evaluate import main  # noqa: E402

if __name__ == "__main__":
    main(Path(__file__).resolve().parent)
"""

_TIMER = """\
#!/bin/bash
# Prints how much of the time is left. The clock started with the agent, not with the image.
started={timer}/started_at
if ! [ -s "$started" ]; then
    echo "the clock has not started"
    exit 1
fi
left=$(($(cat "$started") + {seconds} - $(date +%s)))
if [ "$left" -le 0 ]; then
    echo "0:00:00 left"
else
    printf '%d:%02d:%02d left\\n' $((left / 3600)) $((left % 3600 / 60)) $((left % 60))
fi
"""

TEST = """\
#!/bin/bash
# Judges the submission, evaluates it and the base model, and writes the reward last.
cd /
export PYTHONPATH="/tests/package${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false LC_ALL=C.UTF-8
exec python3 -s -P -m coding_model_project.harbor.posttrain.verifier.verify /tests /logs/verifier
"""

SOLVE = """\
#!/bin/bash
# Fine-tunes the base model on the training problems.
set -e
mkdir -p {workspace}
cp -- "$(dirname -- "$0")/train.py" {workspace}/train.py
cd {workspace}
python3 train.py {base} task_context/train.jsonl final_model {steps}
"""


def timer(hours: float) -> str:
    """Return timer.sh."""
    return _TIMER.format(timer=TIMER, seconds=round(hours * 3600))


def solve(steps: int) -> str:
    """Return the tiny task's solve.sh."""
    return SOLVE.format(workspace=WORKSPACE, base=BASE, steps=steps)


_CHATML = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
_GEMMA = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- set role = 'model' if message['role'] == 'assistant' else 'user' -%}
{{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""
TEMPLATES = {
    "qwen3.jinja": _CHATML,
    "smollm3.jinja": _CHATML,
    "gemma3.jinja": _GEMMA,
    "tiny.jinja": _CHATML,
}
"""Chat templates by file name."""

STOPS = {
    "qwen3.jinja": "<|im_end|>",
    "smollm3.jinja": "<|im_end|>",
    "gemma3.jinja": "<end_of_turn>",
    "tiny.jinja": "<|im_end|>",
}
"""The text that ends an answer, by template file name."""
