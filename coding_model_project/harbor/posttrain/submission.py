"""The agent's folder `final_model`, and whether its weights are the base model's, trained further.

Only data is accepted, and only weights are used. Code in a model's folder runs when a library loads it
(pickles, `auto_map`, custom modelling files). So libraries get only its safetensors files, a format
without code. The evaluation uses the base model's configuration and tokenizer, and the task's chat
template.

The judge compares tensor by tensor. Fine-tuning moves each matrix by a fraction of its length and hardly
turns it; models trained from different random numbers have orthogonal matrices. The threshold lies in the
wide gap between the two (measured in docs/harbor-posttrain.md).
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from coding_model_project.errors import CodingModelError


class Verdict(StrEnum):
    """A judge's verdict. `missing` never counts as `accepted`."""

    accepted = "accepted"
    rejected = "rejected"
    missing = "missing"


class JudgeError(CodingModelError):
    """A missing verdict. The message is the reason, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One judge's verdict with its reasons."""

    judge: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the judgement's entry for judge_analysis.json."""
        return {
            "judge": self.judge,
            "verdict": str(self.verdict),
            "reasons": list(self.reasons),
            **self.details,
        }


WEIGHTS = ".safetensors"
_TEXTS = (".json", ".jinja", ".txt", ".md", ".model")
_HIDDEN = (".gitattributes",)
_MOST_FILES = 200
_MOST_JSON = 64 << 20
_CODE_KEYS = ("auto_map", "custom_pipelines", "quantization_config", "trust_remote_code")
"""Keys of config.json that make a library load other code or other weights."""


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


JUDGE = "lineage"
MIN_COSINE = 0.85
"""Least cosine between a matrix and the base model's: the mean over matrices, weighted by parameters.
Independent models have almost 0, fine-tuned ones nearly 1."""
MIN_TENSOR_COSINE = 0.3
MAX_TURNED_SHARE = 0.1
"""Largest share of parameters in matrices below `MIN_TENSOR_COSINE`: a part may be retrained."""

_WORST = 5


def judge(submitted: Model, base: Path, siblings: Mapping[str, Mapping[str, str]]) -> Judgement:
    """Compare a submission with the base model.

    Args:
        siblings: hashes of other models' tensors, by model name and tensor name.

    Raises:
        Unfit: the submission cannot be read.
        JudgeError, OSError: the base model cannot be read.
    """
    try:
        original = open_model(base)
        tensors = dict(original.tensors())
    except Unfit as error:
        raise JudgeError(f"the base model {base} cannot be read: {error}") from error
    distances, reasons = _distances(submitted, original, tensors, siblings)
    total = sum(one["parameters"] for one in distances) or 1
    cosine = sum(one["cosine"] * one["parameters"] for one in distances) / total
    turned = sum(one["parameters"] for one in distances if one["cosine"] < MIN_TENSOR_COSINE)
    if distances and cosine < MIN_COSINE:
        reasons.append(
            f"the weights are not the base model's: mean cosine {cosine:.3f}, at least {MIN_COSINE}"
        )
    elif turned / total > MAX_TURNED_SHARE:
        reasons.append(
            f"{turned / total:.0%} of the parameters are in matrices that are not the base model's "
            f"(cosine below {MIN_TENSOR_COSINE}); at most {MAX_TURNED_SHARE:.0%} may be"
        )
    distances.sort(key=lambda one: one["cosine"])
    moved = sum(one["relative_distance"] * one["parameters"] for one in distances) / total
    return Judgement(
        judge=JUDGE,
        verdict=Verdict.rejected if reasons else Verdict.accepted,
        reasons=tuple(reasons),
        details={
            "mean_cosine": round(cosine, 6),
            "mean_relative_distance": round(moved, 6),
            "min_cosine": MIN_COSINE,
            "turned_share": round(turned / total, 6),
            "matrices": len(distances),
            "least_alike": distances[:_WORST],
        },
    )


def _distances(
    submitted: Model,
    base: Model,
    theirs: dict[str, Any],
    siblings: Mapping[str, Mapping[str, str]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return each matrix's cosine and distance, and reasons against the submission."""
    import torch

    reasons: list[str] = []
    distances: list[dict[str, Any]] = []
    same: dict[str, list[str]] = {}
    for name, tensor in submitted.tensors():
        expected = theirs.pop(name, None)
        if expected is None:
            if name == "lm_head.weight" and base.config.get("tie_word_embeddings"):
                continue  # a tied copy, which libraries ignore
            reasons.append(f"the tensor {name} is not the base model's")
            continue
        if tensor.shape != expected.shape:
            reasons.append(f"{name}: shape {list(tensor.shape)}, not {list(expected.shape)}")
            continue
        if not tensor.is_floating_point() or not torch.isfinite(tensor).all():
            reasons.append(f"{name}: has values that are not finite floating-point numbers")
            continue
        if tensor.dim() >= 2:
            if not torch.equal(tensor, expected.to(tensor.dtype)):
                hashed = tensor_hash(tensor)
                for sibling, hashes in siblings.items():
                    if hashes.get(name) == hashed:
                        same.setdefault(sibling, []).append(name)
            distances.append(_distance(name, tensor, expected))
    if theirs:
        missing = [name for name in theirs if name != "lm_head.weight"]
        if missing:
            reasons.append(f"{len(missing)} tensors are missing, such as {missing[0]}")
    reasons += [
        f"{len(names)} matrices are those of {sibling}, such as {names[0]}"
        for sibling, names in same.items()
    ]
    return distances, reasons


def _distance(name: str, tensor: Any, expected: Any) -> dict[str, Any]:
    a, b = tensor.double().flatten(), expected.double().flatten()
    length, base_length = a.norm().item(), b.norm().item()
    cosine = (a @ b).item() / (length * base_length) if length and base_length else 0.0
    return {
        "tensor": name,
        "parameters": tensor.numel(),
        "cosine": round(cosine, 6),
        "relative_distance": round((a - b).norm().item() / (base_length or 1.0), 6),
    }


def hashes_of(model: Model) -> dict[str, str]:
    """Hash every matrix of a model."""
    return {name: tensor_hash(tensor) for name, tensor in model.tensors() if tensor.dim() >= 2}
