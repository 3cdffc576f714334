"""Tiny models' folders, made of random numbers."""

import json

import numpy as np
from safetensors.numpy import save_file

CONFIG = {"model_type": "qwen2", "hidden_size": 8, "vocab_size": 12, "eos_token_id": 1}
TOKENIZER = {
    "model": {"vocab": {"a": 0, "b": 1}},
    "added_tokens": [{"id": 1, "content": "<|im_end|>"}],
}


def weights(seed=0):
    """Matrices and a norm, as a model has them."""
    rng = np.random.default_rng(seed)
    names = ("embed.weight", "layers.0.q.weight", "layers.0.up.weight", "layers.1.q.weight")
    found = {name: rng.normal(size=(24, 16)).astype(np.float32) for name in names}
    return found | {"norm.weight": np.ones(16, dtype=np.float32)}


def write_model(folder, tensors=None, config=None):
    """Write a model's folder. Returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights() if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder
