"""`doctor --profile` compares a profile's needs with a machine, and names ways out that lead out."""

import json

import pytest

import coding_model_project.cli as cli
from tests.tables import tables

CASES = tables("unit")

pytestmark = pytest.mark.slow  # each question composes a recipe

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
HEADS = "actor_rollout_ref.rollout.tensor_model_parallel_size"
LARGE = "actor_rollout_ref.model.path=Qwen/Qwen2.5-Coder-7B-Instruct"
CARD = ["--gpus", "1", "--gpu-memory-gb", "80", "--cpus", "16", "--memory-gb", "128"]


@pytest.mark.parametrize(
    ("profile", "machine", "name", "remedy", "way"),
    CASES["machine lacks"],
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


@pytest.mark.parametrize(("arguments", "said"), CASES["bad_input_is_one_line"])
def test_bad_input_is_one_line(arguments, said, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["doctor", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
