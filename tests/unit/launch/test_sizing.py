"""The estimate of a CPU run's memory follows its model; sizes that do not divide are refused."""

from __future__ import annotations

import json

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.sizing import Shape, needed_gb
from tests.tables import tables

CASES = tables("launch")

pytestmark = pytest.mark.slow


def llama_like(model_type, hidden, intermediate, layers, heads, kv_heads, vocabulary):
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary,
        "num_key_value_heads": kv_heads, "tie_word_embeddings": True,
    }  # fmt: skip


TINY = llama_like("qwen2", 128, 512, 4, 4, 2, 1024)
SMOLLM2 = llama_like("llama", 576, 1536, 30, 9, 3, 49152)
QWEN_7B = llama_like("qwen2", 3584, 18944, 28, 28, 4, 152064) | {"tie_word_embeddings": False}


@pytest.mark.verl
@pytest.mark.parametrize("config", [TINY, QWEN_7B], ids=["tiny", "7B"])
def test_parameters_are_those_that_transformers_constructs(config):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config(**config))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert Shape(config).parameters == pytest.approx(count, rel=0.005)  # without biases and norms


@pytest.mark.verl
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_tokens_bytes_are_those_that_autograd_saves(checkpointing):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape, tokens = Shape(TINY), 128

    def saved(layers: int) -> int:
        model = Qwen2ForCausalLM(Qwen2Config(**TINY | {"num_hidden_layers": layers})).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        kept = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        ids = torch.randint(0, TINY["vocab_size"], (1, tokens))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model.model(input_ids=ids, position_ids=torch.arange(tokens)[None], use_cache=False)
        return sum(size for size, _ in kept.values())

    a_layer = (saved(4) - saved(2)) / 2 / tokens
    assert a_layer * TINY["num_hidden_layers"] <= shape.token_bytes(checkpointing=checkpointing)
    assert (
        shape.token_bytes(checkpointing=False)
        == 4 * (8 * (4 * 128 + 192 + 2 * 512 + 4)) + 16 * 1024
    )


@pytest.mark.parametrize(
    ("recipe", "tiny", "longest", "real", "measured"),
    [("grpo", 6, 83 + 96, 15, 14), ("sft", 3, 144, 10, 7.7)],
)
def test_memory_on_a_cpu_follows_the_model(tmp_path, recipe, tiny, longest, real, measured):
    """The real model is SmolLM2-135M-Instruct; its longest sample had so many tokens."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    key = "actor_rollout_ref.model.path" if recipe == "grpo" else "model.path"
    assert needed_gb(compose_recipe(recipe, ["hardware=cpu"])) == tiny
    fenced = ["coding.prompt=fenced", f"{key}={tmp_path}"]
    config = compose_recipe(recipe, ["hardware=cpu", *fenced])
    assert needed_gb(config, longest) == real >= measured
    config.coding.min_memory_gb = 2
    assert needed_gb(config, longest) == 2


@pytest.mark.parametrize(("recipe", "override", "way"), CASES["sizes"])
def test_sizes_that_do_not_divide_are_refused_with_the_nearest(tmp_path, recipe, override, way):
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    key = "actor_rollout_ref.model.path" if recipe == "grpo" else "model.path"
    config = compose_recipe(recipe, ["hardware=gpu_8x", f"{key}={tmp_path}", override])
    with pytest.raises(ConfigError, match=way):
        check_values(config)
