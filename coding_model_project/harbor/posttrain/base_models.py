"""The base models of post-training tasks: the original benchmark's, and a tiny one without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coding_model_project.errors import ConfigError

TINY = "tiny"
DEFAULT_TINY = Path("data/tinycode/base")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """A base model and what a task needs to train and evaluate it."""

    key: str
    hub: str | None
    """Its name on the hub; None for the tiny model, whose folder is part of the task."""
    template: str
    """Its chat template's file, below templates/."""
    engine: str = "vllm"
    """The evaluation's generation back end: `vllm` or `transformers`."""
    gpus: int = 1
    cpus: int = 8
    memory_mb: int = 65_536
    storage_mb: int = 102_400
    longest_answer: int = 1 << 20
    """Most tokens of an answer, if the benchmark allows more."""

    @property
    def name(self) -> str:
        """The model's name in the agent's instruction."""
        return self.hub or "the tiny model"


BASE_MODELS = {
    model.key: model
    for model in (
        BaseModel(key="qwen3-1.7b", hub="Qwen/Qwen3-1.7B-Base", template="qwen3.jinja"),
        BaseModel(key="qwen3-4b", hub="Qwen/Qwen3-4B-Base", template="qwen3.jinja"),
        BaseModel(key="smollm3-3b", hub="HuggingFaceTB/SmolLM3-3B-Base", template="smollm3.jinja"),
        BaseModel(key="gemma3-4b", hub="google/gemma-3-4b-pt", template="gemma3.jinja"),
        BaseModel(
            key=TINY,
            hub=None,
            template="tiny.jinja",
            engine="transformers",
            gpus=0,
            cpus=2,
            memory_mb=4_096,
            storage_mb=2_048,
            longest_answer=96,
        ),
    )
}


def base_model(key: str) -> BaseModel:
    """Return a model by its key.

    Raises:
        ConfigError: there is no such model; the message lists the known ones.
    """
    found = BASE_MODELS.get(key.lower())
    if found is None:
        raise ConfigError(f"--model={key}: no such model; choose one of {', '.join(BASE_MODELS)}")
    return found


def folder_of(model: BaseModel, given: Path | None) -> Path | None:
    """Return the folder of a base model to embed in the task; None if the image downloads it.

    Raises:
        ConfigError: it is missing, or does not hold a model.
    """
    if model.hub is not None and given is None:
        return None
    folder = given or DEFAULT_TINY
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise ConfigError(
            f"--base={folder}: no base model (config.json and safetensors files); make the tiny one with "
            "`data prepare tinycode --base-model`"
        )
    return folder
