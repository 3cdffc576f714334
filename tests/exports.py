"""The claim of every export: it has the starting model's files, and a dtype that its weights have."""

import json
from pathlib import Path

from coding_model_project.runs.starting_model import weight_entries

WEIGHTS = ("*.safetensors", "*.index.json")
OURS = {"README.md", "export.json"}
SAFETENSORS = {"float32": "F32", "bfloat16": "BF16"}


def files(model: Path) -> dict[str, bytes]:
    weights = {file for form in WEIGHTS for file in model.glob(form)}
    found = {file.name: file for file in set(model.iterdir()) - weights}
    return {name: file.read_bytes() for name, file in found.items() if name not in OURS}


def check_is_start(export: Path, start: Path) -> None:
    ours, theirs = files(export), files(start)
    config, started = json.loads(ours.pop("config.json")), json.loads(theirs.pop("config.json"))
    assert config == started
    assert ours == theirs
    assert {"generation_config.json", "tokenizer_config.json", "chat_template.jinja"} <= set(ours)
    dtypes = {entry["dtype"] for entry in weight_entries(export).values()}
    assert dtypes == {SAFETENSORS[config["dtype"]]}
