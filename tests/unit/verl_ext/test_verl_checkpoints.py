"""LoRA's weights merged into an export equal what PEFT computes with them."""

import json

import pytest

from coding_model_project.errors import CheckpointError

pytestmark = pytest.mark.verl


SMALL = {
    "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 11,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
}  # fmt: skip


@pytest.fixture
def exported(tmp_path):
    """A verl checkpoint of a model with adapters, and that model's answer."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SMALL))
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=6, target_modules="all-linear"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    folder = tmp_path / "huggingface"
    model.get_base_model().config.save_pretrained(folder)
    (tmp_path / "lora_train_meta.json").write_text(json.dumps({"r": 2, "lora_alpha": 6}))
    ids = torch.arange(11)[None]
    with torch.no_grad():
        return tmp_path, dict(model.state_dict()), ids, model(ids).logits


def test_names_and_numbers_are_those_of_the_merged_model(exported):
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    from coding_model_project.verl_ext.trainers.verl_checkpoints import merge_exports

    checkpoint, state, ids, logits = exported
    # in two files, as a large model is: an adapter need not lie where its weights lie
    names = sorted(state)
    index = {}
    for number, own in enumerate((names[::2], names[1::2])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({n: state[n].clone() for n in own}, checkpoint / "huggingface" / file)
        index |= dict.fromkeys(own, file)
    index_file = checkpoint / "huggingface" / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    merge_exports(checkpoint)
    model, found = AutoModelForCausalLM.from_pretrained(
        checkpoint / "huggingface", output_loading_info=True
    )
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    torch.testing.assert_close(model(ids).logits, logits, atol=1e-5, rtol=1e-4)


def test_what_the_merger_leaves_apart_is_merged_and_removed(exported):
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    from coding_model_project.verl_ext.trainers.verl_checkpoints import merge_left_adapter

    checkpoint, state, ids, logits = exported
    folder = checkpoint / "huggingface"
    (folder / "lora_adapter").mkdir()
    config = {"r": 2, "lora_alpha": 6}
    (folder / "lora_adapter" / "adapter_config.json").write_text(json.dumps(config))
    plain = {n: t.clone() for n, t in state.items() if "lora_" not in n}
    plain = {
        n.removeprefix("base_model.model.").replace(".base_layer", ""): t for n, t in plain.items()
    }
    save_file(plain, folder / "model.safetensors")
    adapters = {n.replace(".default", ""): t.clone() for n, t in state.items() if "lora_" in n}
    save_file(adapters, folder / "lora_adapter" / "adapter_model.safetensors")
    merge_left_adapter(folder)
    assert not (folder / "lora_adapter").exists()
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(model(ids).logits, logits, atol=1e-5, rtol=1e-4)


def test_an_adapter_of_something_else_is_refused(exported):
    from safetensors.torch import save_file

    from coding_model_project.verl_ext.trainers.verl_checkpoints import merge_exports

    checkpoint, state, _, _ = exported
    odd = {"base_model.model.model.embed_tokens.lora_embedding_A": state[next(iter(state))].clone()}
    save_file(odd, checkpoint / "huggingface" / "model.safetensors")
    with pytest.raises(CheckpointError, match="does not belong to a linear layer"):
        merge_exports(checkpoint)


# The step from which verl's SFT trainer resumes.


def test_a_runs_name_may_look_like_a_checkpoints(monkeypatch):
    from verl.utils.checkpoint import checkpoint_handler

    from coding_model_project.verl_ext.trainers.verl_checkpoints import read_last_step

    monkeypatch.setattr(checkpoint_handler, "extract_step", checkpoint_handler.extract_step)
    read_last_step()
    path = "outputs/after_global_step_900/checkpoints/global_step_4"
    assert checkpoint_handler.extract_step(path) == 4
