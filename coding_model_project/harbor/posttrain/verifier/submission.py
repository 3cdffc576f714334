"""The agent's folder `final_model`: only data is accepted, and only weights are used.

Code in a model's folder runs when a library loads it (pickles, `auto_map`, custom modelling files). So
libraries get only its safetensors files, a format without code. The evaluation uses the base model's
configuration and tokenizer, and the task's chat template.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WEIGHTS = ".safetensors"
_TEXTS = (".json", ".jinja", ".txt", ".md", ".model")
_HIDDEN = (".gitattributes",)
_MOST_FILES = 200
_MOST_JSON = 64 << 20
_CODE_KEYS = ("auto_map", "custom_pipelines", "quantization_config", "trust_remote_code")
"""Keys of config.json that make a library load other code or other weights."""

SHAPE_KEYS = (
    "model_type",
    "architectures",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
)
"""Keys of config.json that must equal the base model's where both have them."""


class Unfit(Exception):
    """A submission that cannot be evaluated. The message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's folder whose files have been checked."""

    folder: Path
    weights: tuple[Path, ...]
    config: Mapping[str, Any]

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Yield each tensor with its name, one at a time.

        Raises:
            Unfit: a file is not a valid safetensors file, or a tensor's name occurs twice.
        """
        from safetensors import SafetensorError, safe_open

        seen: set[str] = set()
        for path in self.weights:
            try:
                with safe_open(str(path), framework="pt", device="cpu") as opened:
                    for name in opened.keys():  # noqa: SIM118 - not a mapping
                        if name in seen:
                            raise Unfit(f"{path.name}: the tensor {name} occurs twice")
                        seen.add(name)
                        yield name, opened.get_tensor(name)
            except (SafetensorError, OSError, ValueError, RuntimeError) as error:
                raise Unfit(f"{path.name} is not a readable safetensors file: {error}") from error


def open_model(folder: Path) -> Model:
    """Check a model's folder.

    Raises:
        Unfit: it is missing, holds more than data, or lacks weights or a configuration.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise Unfit(f"there is no folder {folder}")
    found: list[Path] = []
    for path in sorted(folder.rglob("*")):
        kind = path.lstat().st_mode
        name = path.relative_to(folder)
        if stat.S_ISDIR(kind):
            continue
        if not stat.S_ISREG(kind):
            raise Unfit(f"{name} is a link or a special file; only plain files are data")
        if len(name.parts) > 1 or path.suffix not in (WEIGHTS, *_TEXTS):
            if path.name in _HIDDEN:
                continue
            raise Unfit(
                f"{name}: only {WEIGHTS} and {', '.join(_TEXTS)} files are data; remove it, and save "
                "weights with save_pretrained(…, safe_serialization=True)"
            )
        found.append(path)
    if len(found) > _MOST_FILES:
        raise Unfit(f"{len(found)} files; at most {_MOST_FILES}")
    weights = tuple(path for path in found if path.suffix == WEIGHTS)
    if any(path.name == "adapter_config.json" for path in found):
        raise Unfit("adapter_config.json: merge the adapter into the weights first")
    if not weights:
        raise Unfit(f"no {WEIGHTS} file")
    config = _config(folder / "config.json")
    for key in _CODE_KEYS:
        if config.get(key):
            raise Unfit(f"config.json: {key} would load other code or weights; remove it")
    return Model(folder=folder, weights=weights, config=config)


def _config(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _MOST_JSON:
            raise Unfit(f"{path.name}: more than {_MOST_JSON} bytes")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(f"{path.name} is missing or not JSON: {error}") from error
    if not isinstance(config, dict):
        raise Unfit(f"{path.name} is not a JSON object")
    return config


def assemble(submitted: Model, base: Path, template: str, stop: str, out: Path) -> Path:
    """Make the evaluated folder: the submitted weights with the base model's other files.

    Args:
        template: the task's chat template.
        stop: the token that ends an answer in this template.

    Returns:
        `out`.

    Raises:
        OSError: the folder cannot be written.
    """
    out.mkdir(parents=True)
    for path in sorted(base.iterdir()):
        if path.is_file() and path.suffix in _TEXTS and not path.name.endswith(".index.json"):
            (out / path.name).write_bytes(path.read_bytes())
    for number, path in enumerate(submitted.weights):
        # Own names, because the base model's index refers to other files.
        (out / f"part-{number:05d}{WEIGHTS}").symlink_to(path.resolve())
    if len(submitted.weights) == 1:
        (out / f"part-00000{WEIGHTS}").rename(out / f"model{WEIGHTS}")
    else:
        places = {
            name: f"part-{number:05d}{WEIGHTS}"
            for number, path in enumerate(submitted.weights)
            for name in _names(path)
        }
        index = {"metadata": {}, "weight_map": places}
        (out / f"model{WEIGHTS}.index.json").write_text(json.dumps(index))
    (out / "chat_template.jinja").write_text(template)
    ends = _ends(base, stop)
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return out


def _ends(base: Path, stop: str) -> list[int]:
    """Return the tokens that end an answer: the base model's and the template's.

    Raises:
        Unfit: the base model's files do not define any.
    """
    ends: list[int] = []
    for name in ("generation_config.json", "config.json"):
        if (base / name).is_file():
            given = _config(base / name).get("eos_token_id")
            ends += given if isinstance(given, list) else [given] if given is not None else []
    try:
        added = json.loads((base / "tokenizer.json").read_bytes()).get("added_tokens", ())
        ends += [one["id"] for one in added if one["content"] == stop]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unfit(f"the base model's tokenizer.json cannot be read: {error}") from error
    if not ends:
        raise Unfit("the base model has no token that ends an answer")
    return sorted(set(ends))


def _names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(str(path), framework="pt", device="cpu") as opened:
        return list(opened.keys())


def tensor_hash(tensor: Any) -> str:
    """Hash a tensor's values, shape and dtype."""
    import torch

    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
