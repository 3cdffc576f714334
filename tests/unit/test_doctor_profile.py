"""`doctor --profile` compares a profile's needs with a machine, and names ways out that lead out."""

import json

import pytest

import coding_model_project.cli as cli

pytestmark = pytest.mark.slow  # each question composes a recipe

NODE = ["--gpus", "8", "--gpu-memory-gb", "80", "--cpus", "64", "--memory-gb", "512"]


@pytest.fixture
def ask(capsys):
    """Run the doctor with --json; return its exit code, findings by name, and answer."""

    def run_doctor(profile, *arguments):
        code = cli.main(["doctor", "--json", "--profile", profile, *arguments])
        answer = json.loads(capsys.readouterr().out)
        return code, {finding["name"]: finding for finding in answer["findings"]}, answer

    return run_doctor


@pytest.mark.parametrize("recipe", ["grpo", "repair", "harbor", "sft", "dpo"])
def test_a_node_of_eight_cards_fits(ask, recipe):
    code, findings, answer = ask("gpu_8x", "--recipe", recipe, *NODE)
    assert code == 0, findings
    assert "problem" not in {finding["status"] for finding in findings.values()}
    phases = {"update"} if recipe in ("sft", "dpo") else {"update", "log-probs", "generation"}
    assert set(answer["gpu_gb"]) == phases
    assert answer["gpu_gb"]["update"]["weights"] == 3.55  # 4 bytes × 7,615,616,512 / 8 GPUs, in GiB


def test_several_nodes_are_needed_as_the_profile_says(ask):
    code, findings, _ = ask("gpu_multi", *NODE)
    assert code == 1
    assert findings["gpus"]["remedy"] == "set trainer.nnodes=1"
    assert ask("gpu_multi", *NODE, "--nodes", "4")[0] == 0


def test_a_rollout_with_its_own_gpus(ask):
    rollout = "actor_rollout_ref.rollout"
    separate = ["coding.mode=separate_async", f"{rollout}.nnodes=1"]
    code, findings, _ = ask("gpu_8x", *NODE, *separate)
    assert code == 1
    assert findings["gpus"]["finding"].endswith("needs 1 × 8 and 8 for the rollout")
    assert findings["gpus"]["remedy"].startswith("use more nodes")
    both = [*NODE, "--nodes", "2", *separate, f"{rollout}.gpu_memory_utilization=0.85"]
    code, findings, answer = ask("gpu_8x", *both)
    assert code == 0, findings
    assert "weights" not in answer["gpu_gb"]["generation"], "the trainer's are on other GPUs"


def test_fewer_gpus_than_the_profile(ask):
    four = [*NODE, "--gpus", "4"]
    code, findings, _ = ask("gpu_8x", *four)
    assert code == 1
    assert findings["gpus"]["remedy"] == "set trainer.n_gpus_per_node=4"
    assert ask("gpu_8x", *four, "trainer.n_gpus_per_node=4")[0] == 0


def test_too_few_cpus_are_refused_as_the_run_would_be(ask):
    small = ["--gpus", "1", "--gpu-memory-gb", "80", "--memory-gb", "64", "--cpus", "5"]
    code, findings, _ = ask("gpu_1x", *small)
    assert code == 1
    assert findings["cpus"]["finding"].startswith("6 reserved of 5")
    way = "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"
    assert findings["cpus"]["remedy"].startswith(way)
    assert ask("gpu_1x", *small, way)[0] == 0


def test_ways_out_of_a_smaller_card_lead_out(ask):
    """Applies each problem's remedy until there are no problems."""
    machine = ["--gpus", "1", "--gpu-memory-gb", "40", "--cpus", "16", "--memory-gb", "128"]
    overrides: list[str] = []
    for _ in range(6):
        code, findings, _ = ask("gpu_1x", *machine, *overrides)
        ways = [f["remedy"] for f in findings.values() if f["status"] == "problem"]
        if code == 0:
            break
        assert all(way.startswith("set ") for way in ways), ways
        new = [way.removeprefix("set ").split(",")[0] for way in ways]
        keys = {one.partition("=")[0] for one in new}
        overrides = [one for one in overrides if one.partition("=")[0] not in keys] + new
    assert code == 0, findings
    assert overrides


def test_a_model_too_large_for_one_card_says_so(ask):
    machine = ["--gpus", "1", "--gpu-memory-gb", "80", "--cpus", "16", "--memory-gb", "128"]
    model = "actor_rollout_ref.model.path=Qwen/Qwen2.5-Coder-7B-Instruct"
    code, findings, _ = ask("gpu_1x", *machine, model)
    assert code == 1
    assert "experiment=lora" in findings["update"]["remedy"]
    assert ask("gpu_1x", *machine, model, "experiment=lora")[0] == 0


def test_a_cache_that_holds_no_whole_sample(ask):
    model = "actor_rollout_ref.model.path=Qwen/Qwen2.5-Coder-7B-Instruct"
    share = "actor_rollout_ref.rollout.gpu_memory_utilization"
    _, findings, _ = ask("gpu_8x", *NODE, model, f"{share}=0.21")
    assert findings["generation"]["status"] == "problem"
    assert (
        "too small for one sample of max_model_len=6144 tokens" in findings["generation"]["finding"]
    )
    assert findings["generation"]["remedy"].startswith(f"set {share}=0.7")
    null = "actor_rollout_ref.rollout.max_model_len=null"
    assert ask("gpu_8x", *NODE, model, null)[0] == 0


def test_values_that_do_not_divide_are_a_problem_with_the_way_out(ask):
    key = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    code, findings, _ = ask("gpu_8x", *NODE, f"{key}=8")
    assert code == 1
    assert findings["values"]["finding"].startswith(f"{key}=8")
    assert findings["values"]["remedy"] == "set it to 4"


def test_little_host_memory(ask):
    code, findings, _ = ask("gpu_8x", *NODE, "--memory-gb", "64")
    assert code == 1
    assert findings["memory"]["status"] == "problem"


def test_the_cpu_profile(ask):
    assert ask("cpu", "--cpus", "2", "--memory-gb", "16")[0] == 0
    code, findings, _ = ask("cpu", "--cpus", "2", "--memory-gb", "4")
    assert (code, findings["memory"]["status"]) == (1, "problem")


def test_the_table(capsys):
    assert cli.main(["doctor", "--profile", "gpu_8x", *NODE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "GB on each GPU" in lines[1]
    assert [word in lines[1] for word in ("update", "log-probs", "generation")] == [True] * 3
    assert any("total" in line for line in lines)
    assert lines[-1].endswith("0 problems: ready to train")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", "8"], "add --profile"),
        (["coding.seed=1"], "add --profile"),
        (["--profile", "gpu_9x"], "gpu_9x"),
        (["--profile", "gpu_8x", "--recipe", "demo"], "expected one of grpo"),
        (["--profile", "gpu_8x", "--gpus", "8"], "--gpu-memory-gb"),
        (["--profile", "gpu_8x", *NODE, "actor_rollout_ref.model.path=some/model"], "some/model"),
        (
            ["--profile", "gpu_8x", *NODE, "data.train_batch=1"],
            "did you mean data.train_batch_size",
        ),
    ],
)
def test_bad_input_is_one_line(arguments, said, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["doctor", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
