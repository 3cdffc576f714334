"""Estimates equal what can be counted: parameters, autograd's tensors, Adam's states, files."""

from __future__ import annotations

import json

import pytest

import coding_model_project.cli as cli
from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.sizing import GIB, PUBLISHED, Training, needed_gb, of_config
from tests.tables import tables

CASES, MACHINES = tables("launch"), tables("unit")

pytestmark = pytest.mark.slow


def llama_like(model_type, hidden, intermediate, layers, heads, kv_heads, vocabulary):
    return {
        "model_type": model_type, "hidden_size": hidden, "intermediate_size": intermediate,
        "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary,
        "num_key_value_heads": kv_heads, "tie_word_embeddings": True,
    }  # fmt: skip


TINY = llama_like("qwen2", 128, 512, 4, 4, 2, 1024)
SMOLLM2 = llama_like("llama", 576, 1536, 30, 9, 3, 49152)


def constructed(config):
    """transformers' configuration and class of a config.json."""
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    kinds = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
    configuration, model = kinds[config["model_type"]]
    return configuration(**config), model


@pytest.mark.verl
@pytest.mark.parametrize("config", [*PUBLISHED.values(), TINY], ids=lambda c: str(c["hidden_size"]))
def test_parameters_are_those_that_transformers_constructs(config):
    import torch

    configuration, model = constructed(config)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model(configuration).parameters())
    assert of_config(config).parameters == count


@pytest.mark.verl
@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_bytes_kept_for_backward_are_those_that_autograd_saves(kind):
    import torch

    config = {**TINY, "model_type": kind, "head_dim": 64, "tie_word_embeddings": False}
    shape, tokens = of_config(config), 128
    configuration, kind_of_model = constructed(config)

    def saved(layers: int, *, checkpointing: bool) -> int:
        configuration.num_hidden_layers = layers
        configuration.layer_types = ["full_attention"] * layers
        model = kind_of_model(configuration).to(torch.bfloat16).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        kept = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        ids = torch.randint(0, config["vocab_size"], (1, tokens))
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            torch.autocast("cpu", dtype=torch.bfloat16),
        ):
            model.model(input_ids=ids, position_ids=torch.arange(tokens)[None], use_cache=False)
        return sum(size for size, _ in kept.values())

    for checkpointing, per_token in (
        (False, shape.layer_bytes),
        (True, shape.kept_bytes / shape.layers),
    ):
        four, two = (saved(layers, checkpointing=checkpointing) for layers in (4, 2))
        assert (four - two) / 2 / tokens == per_token


@pytest.mark.verl
def test_states_and_files_of_a_trained_model(tmp_path):
    """Weights, gradients and moments of a step in single precision, and a checkpoint of all of them."""
    import torch

    configuration, kind = constructed(TINY)
    model = kind(configuration)
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, TINY["vocab_size"], (2, 16))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()

    def size(tensors) -> int:
        return sum(tensor.nbytes for tensor in tensors)

    made = training("gpu_1x")
    made.shape = of_config(TINY)
    gradients = [parameter.grad for parameter in model.parameters()]
    moments = [
        m for state in optimizer.state.values() for m in (state["exp_avg"], state["exp_avg_sq"])
    ]
    assert made.states(1) == size([*model.parameters(), *gradients, *moments])

    torch.save(model.state_dict(), tmp_path / "model.pt")
    torch.save(optimizer.state_dict(), tmp_path / "optim.pt")
    model.save_pretrained(tmp_path / "huggingface")
    files = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert made.checkpoint_gb * GIB == pytest.approx(files, rel=0.02)


def training(profile="gpu_8x", *overrides, recipe="grpo"):
    return Training(compose_recipe(recipe, [f"hardware={profile}", *overrides]))


def test_shards_and_offload():
    one, eight = training("gpu_8x", "trainer.n_gpus_per_node=1"), training("gpu_8x")
    assert one.resident_gb == pytest.approx(8 * eight.resident_gb)
    engine = "actor_rollout_ref.actor.fsdp_config"
    weights = training("gpu_8x", f"{engine}.optimizer_offload=true").resident_gb
    assert weights == pytest.approx(eight.resident_gb / 3)


def test_an_adapter_trains_little_of_the_model():
    model = "actor_rollout_ref.model.path=Qwen/Qwen2.5-Coder-7B-Instruct"
    assert training("gpu_1x", model).update_gb() > 120
    lora = training("gpu_1x", "experiment=lora", model)
    # 40,370,176 × rank 32 / 16: the adapter of all linear layers of Qwen2.5-7B.
    assert lora.trained == 80_740_352
    assert lora.update_gb() < 60


@pytest.mark.parametrize(
    ("recipe", "tiny", "longest", "real", "measured"),
    [("grpo", 6, 83 + 96, 15, 14), ("sft", 3, 144, 10, 7.7)],
)
def test_memory_on_a_cpu_follows_the_model(tmp_path, recipe, tiny, longest, real, measured):
    """The real model is SmolLM2-135M-Instruct; its longest sample had so many tokens."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    key = "actor_rollout_ref.model.path" if recipe == "grpo" else "model.path"
    assert needed_gb(compose_recipe(recipe, ["hardware=cpu"])) == tiny
    config = compose_recipe(recipe, ["hardware=cpu", f"{key}={tmp_path}"])
    assert needed_gb(config, longest) == real >= measured
    config.coding.min_memory_gb = 2
    assert needed_gb(config, longest) == 2


def test_a_model_that_is_not_known_is_named():
    with pytest.raises(ConfigError, match=r"model\.path=some/model: no config\.json"):
        training("gpu_8x", "actor_rollout_ref.model.path=some/model")


@pytest.mark.parametrize(("recipe", "override", "way"), CASES["sizes"])
def test_sizes_that_do_not_divide_are_refused_with_the_nearest(recipe, override, way):
    config = compose_recipe(recipe, ["hardware=gpu_8x", override])
    with pytest.raises(ConfigError, match=way):
        check_values(config)


# ── `doctor --profile` compares a profile's needs with a machine, and names ways out that lead out


NODE = ["--gpus", "8", "--gpu-memory-gb", "80", "--cpus", "64", "--memory-gb", "512"]


@pytest.fixture
def ask(capsys):
    """Run the doctor with --json; return its exit code, and findings by name."""

    def run_doctor(profile, *arguments):
        code = cli.main(["doctor", "--json", "--profile", profile, *arguments])
        answer = json.loads(capsys.readouterr().out)
        return code, {finding["name"]: finding for finding in answer["findings"]}

    return run_doctor


@pytest.mark.parametrize("recipe", ["grpo", "repair", "harbor", "sft", "dpo"])
def test_a_node_of_eight_cards_fits(ask, recipe):
    code, findings = ask("gpu_8x", "--recipe", recipe, *NODE)
    assert code == 0, findings
    assert "problem" not in {finding["status"] for finding in findings.values()}
    assert ("generation" in findings) == (recipe not in ("sft", "dpo"))


UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"
LARGE = "actor_rollout_ref.model.path=Qwen/Qwen2.5-Coder-7B-Instruct"


@pytest.mark.parametrize(
    ("profile", "machine", "name", "remedy", "way"),
    MACHINES["machine lacks"],
    ids=["nodes", "cards", "cpus", "a large model", "a divisor", "memory"],
)
def test_what_a_machine_lacks_has_a_way_out_that_leads_out(
    ask, profile, machine, name, remedy, way
):
    code, findings = ask(profile, *machine)
    assert (code, findings[name]["status"]) == (1, "problem")
    assert remedy in findings[name]["remedy"]
    assert ask(profile, *machine, *(way or [remedy.removeprefix("set ")]))[0] == 0


def test_a_rollout_with_its_own_gpus(ask):
    rollout = "actor_rollout_ref.rollout"
    separate = ["coding.mode=separate_async", f"{rollout}.nnodes=1"]
    code, findings = ask("gpu_8x", *NODE, *separate)
    assert code == 1
    assert findings["gpus"]["finding"].endswith("needs 1 × 8 and 8 for the rollout")
    assert findings["gpus"]["remedy"].startswith("use more nodes")
    both = [*NODE, "--nodes", "2", *separate, f"{rollout}.gpu_memory_utilization=0.85"]
    code, findings = ask("gpu_8x", *both)
    assert code == 0, findings
    assert "beside 0 of weights" in findings["generation"]["finding"], "they are on other GPUs"


def test_ways_out_of_a_smaller_card_lead_out(ask):
    """Applies each problem's remedy until there are no problems."""
    machine = ["--gpus", "1", "--gpu-memory-gb", "40", "--cpus", "16", "--memory-gb", "128"]
    overrides: list[str] = []
    for _ in range(6):
        code, findings = ask("gpu_1x", *machine, *overrides)
        ways = [f["remedy"] for f in findings.values() if f["status"] == "problem"]
        if code == 0:
            break
        assert all(way.startswith("set ") for way in ways), ways
        new = [way.removeprefix("set ").split(",")[0] for way in ways]
        keys = {one.partition("=")[0] for one in new}
        overrides = [one for one in overrides if one.partition("=")[0] not in keys] + new
    assert code == 0, findings
    assert overrides


@pytest.mark.parametrize(("arguments", "said"), MACHINES["bad_input_is_one_line"])
def test_bad_input_is_one_line(arguments, said, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["doctor", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
