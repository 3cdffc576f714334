"""A judge of whether submitted weights are the base model's, trained further.

It compares tensor by tensor. Fine-tuning moves each matrix by a fraction of its length and hardly turns
it; models trained from different random numbers have orthogonal matrices. The threshold lies in the wide
gap between the two (measured in docs/harbor-posttrain.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coding_model_project.harbor.posttrain.verifier.judgements import (
    JudgeError,
    Judgement,
    Verdict,
)
from coding_model_project.harbor.posttrain.verifier.submission import (
    SHAPE_KEYS,
    Model,
    Unfit,
    open_model,
    tensor_hash,
)

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
        tensors, vocabulary = dict(original.tensors()), _vocabulary(base)
    except Unfit as error:
        raise JudgeError(f"the base model {base} cannot be read: {error}") from error
    reasons = [*_shape_reasons(submitted, original), *_tokenizer_reasons(submitted, vocabulary)]
    distances, more = _distances(submitted, original, tensors, siblings)
    reasons += more
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


def _shape_reasons(submitted: Model, base: Model) -> list[str]:
    return [
        f"config.json: {key}={submitted.config[key]!r}, the base model's is {base.config[key]!r}"
        for key in SHAPE_KEYS
        if key in submitted.config
        and key in base.config
        and submitted.config[key] != base.config[key]
    ]


def _tokenizer_reasons(submitted: Model, theirs: set[tuple[str, int]] | None) -> list[str]:
    """Return reasons against the submitted tokenizer. A missing one counts as the base model's."""
    own = _vocabulary(submitted.folder)
    if own is None or theirs is None or own == theirs:
        return []
    return [f"the tokenizer differs from the base model's in {len(own ^ theirs)} tokens"]


def _vocabulary(folder: Path) -> set[tuple[str, int]] | None:
    try:
        content = json.loads((folder / "tokenizer.json").read_bytes())
        known = content["model"]["vocab"]
        pairs = (
            known.items() if isinstance(known, dict) else ((w, i) for i, (w, _) in enumerate(known))
        )
        return {(str(word), int(number)) for word, number in pairs}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unfit(f"tokenizer.json cannot be read: {error}") from error


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
