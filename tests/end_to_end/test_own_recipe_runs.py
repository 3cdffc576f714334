"""verl's own `main_ppo` with this package's reward manager: rows as verl's example scripts write them, in
each trainer mode, and what becomes of samples that cannot be judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coding_model_project.launch.device import CPU_ENVIRONMENT, ON_LOOPBACK, QUIET_ENVIRONMENT

pytestmark = [pytest.mark.soak, pytest.mark.verl, pytest.mark.timeout(1800)]

GROUPS, SAMPLES, STEPS = 4, 4, 2
MANAGER = [
    "reward.reward_manager.source=importlib",
    "reward.reward_manager.name=CodeRewardManager",
    "reward.reward_manager.module.path=pkg://coding_model_project.verl_reward",
]
ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "model"))
ON_A_CPU = [
    "algorithm.adv_estimator=grpo",
    f"data.train_batch_size={GROUPS}",
    "data.max_prompt_length=160",
    "data.max_response_length=32",
    "data.dataloader_num_workers=0",
    f"{MODEL}.use_remove_padding=false",
    f"{MODEL}.enable_gradient_checkpointing=false",
    f"+{MODEL}.override_config.attn_implementation=sdpa",
    f"{ACTOR}.strategy=fsdp2",
    f"{ACTOR}.ppo_mini_batch_size={GROUPS}",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=8",
    f"{ACTOR}.use_torch_compile=false",
    f"{ACTOR}.use_kl_loss=false",
    f"{ACTOR}.fsdp_config.model_dtype=fp32",
    f"{ACTOR}.fsdp_config.dtype=float32",
    f"{ACTOR}.fsdp_config.use_torch_compile=false",
    f"+{ACTOR}.fsdp_config.mixed_precision="
    "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    f"{ROLLOUT}.name=vllm",
    f"{ROLLOUT}.n={SAMPLES}",
    f"{ROLLOUT}.dtype=float32",
    f"{ROLLOUT}.tensor_model_parallel_size=1",
    f"{ROLLOUT}.enforce_eager=true",
    f"{ROLLOUT}.free_cache_engine=false",
    f"+{ROLLOUT}.enable_sleep_mode=false",
    f"{ROLLOUT}.max_model_len=192",
    f"{ROLLOUT}.max_num_seqs=32",
    f"{ROLLOUT}.max_num_batched_tokens=2048",
    f"+{ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes=134217728",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
    f"{ROLLOUT}.agent.num_workers=1",
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes=64",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "reward.num_workers=2",
    "trainer.device=cpu",
    "trainer.nnodes=1",
    "trainer.n_gpus_per_node=1",
    f"trainer.total_training_steps={STEPS}",
    "trainer.total_epochs=9",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.logger=[console,file]",
    "trainer.resume_mode=disable",
    "ray_kwargs.ray_init.num_cpus=16",
    "+ray_kwargs.ray_init.num_gpus=2",
    "+ray_kwargs.ray_init.include_dashboard=false",
    "+ray_kwargs.ray_init.object_store_memory=300000000",
]
MODES = {
    "sync": [],
    "colocate_async": [],
    "separate_async": [
        "actor_rollout_ref.hybrid_engine=false",
        f"{ROLLOUT}.nnodes=1",
        f"{ROLLOUT}.n_gpus_per_node=1",
        f"{ROLLOUT}.checkpoint_engine.backend=cpu",
        f"{ROLLOUT}.checkpoint_engine.custom_backend_module="
        "coding_model_project.verl_ext.cpu.checkpoint_engine",
        "trainer.v1.separate_async.parameter_sync_step=1",
    ],
}
BARE = "+coding.prompt=bare"
OFTEN = [
    "+coding.sandbox.name=tests.faults:FailsOften",
    "+coding.sandbox.kwargs.every=6",
    "+coding.sandbox.max_failure_rate=0.9",
]
"""Each sixth program cannot be judged."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    log: str
    steps: list[dict[str, float]]


def gsm8k(n: int) -> dict[str, Any]:
    """A row of verl's `examples/data_preprocess/gsm8k.py`."""
    question = f"Tom has {n} apples and buys {n} more. How many has he?"
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(2 * n)},
        "extra_info": {
            "split": "train",
            "index": n,
            "answer": f"#### {2 * n}",
            "question": question,
        },
    }


def eurus(n: int) -> dict[str, Any]:
    """A row of code as in PRIME's Eurus-2 data, which verl's scripts train on."""
    tests = {"inputs": [f"{n} 2\n", "3 4\n"], "outputs": [f"{n + 2}\n", "7\n"]}
    return {
        "data_source": "taco",
        "prompt": [{"role": "user", "content": f"Print the sum of two numbers ({n})."}],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(tests)},
        "extra_info": {"split": "train", "index": n},
    }


def with_tool(n: int) -> dict[str, Any]:
    """A row of verl's `examples/data_preprocess/gsm8k_tool_agent_loop.py`."""
    row = gsm8k(n)
    asked = [{"role": "system", "content": "Use `double`, then answer."}, *row["prompt"]]
    kwargs = {"double": {"create_kwargs": {"ground_truth": str(2 * n)}}}
    about = row["extra_info"] | {"need_tools_kwargs": True, "tools_kwargs": kwargs}
    return row | {"agent_name": "tool_agent", "prompt": asked, "extra_info": about}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pandas as pd

    pd.DataFrame(rows).to_parquet(path)
    return path


def mixed(folder: Path) -> Path:
    return write(folder / "rows.parquet", [one(n) for n in range(8) for one in (gsm8k, eurus)])


def main_ppo(world, folder: Path, mode: str, rows: Path, *more: str) -> Ended:
    """Run verl's `main_ppo` to its end."""
    environment = CPU_ENVIRONMENT | QUIET_ENVIRONMENT | ON_LOOPBACK
    environment |= {
        "OMP_NUM_THREADS": "2",
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        # verl's separate_async passes print's `flush` to its logger, which fails at level INFO.
        "VERL_LOGGING_LEVEL": "WARNING",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *ON_A_CPU, *MANAGER, *MODES[mode]]
    command += [f"hydra.run.dir={folder}", f"trainer.default_local_dir={folder}/checkpoints"]
    command += [
        f"data.train_files={rows}",
        f"data.val_files={rows}",
        f"{MODEL}.path={world.root}/model",
    ]
    command += [f"trainer.v1.trainer_mode={mode}", f"+coding.run_dir={folder}", BARE, *more]
    with (folder / "log").open("wb") as log:
        ended = subprocess.run(
            command, stdout=log, stderr=log, env=os.environ | environment, cwd=folder, check=False
        )
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    steps = [row["data"] for row in map(json.loads, lines) if "actor/pg_loss" in row["data"]]
    return Ended(code=ended.returncode, log=(folder / "log").read_text(), steps=steps)


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_maths_and_programs_train_in_each_mode_and_dropped_samples_are_noted(
    mode, world, tmp_path
):
    validates = ["trainer.test_freq=2"] if mode == "sync" else []
    ended = main_ppo(world, tmp_path, mode, mixed(tmp_path), *OFTEN, *validates)
    assert (ended.code, len(ended.steps)) == (0, STEPS), ended.log[-3000:]
    noted = (tmp_path / "ungradable.jsonl").read_text()
    assert "made to fail" in noted
    ran = [step["judge/ran_tests"] for step in ended.steps]
    assert any(0 < share < 1 for share in ran)  # verl scored the others
    lost = [step["judge/ungradable"] for step in ended.steps]
    if mode == "sync":
        assert any(lost)
    else:  # whole groups are evicted, and replaced by others
        assert not any(lost)
        evicted = "training/rollout_failure/evicted_samples"
        assert any(step.get(evicted) for step in ended.steps)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_sample_with_no_advantage_keeps_its_group_and_is_no_score(mode, world, tmp_path):
    kept = "+coding.on_ungradable=zero_advantage"
    ended = main_ppo(world, tmp_path, mode, mixed(tmp_path), *OFTEN, kept)
    assert (ended.code, len(ended.steps)) == (0, STEPS), ended.log[-3000:]
    assert any(step["judge/ungradable"] for step in ended.steps)
    evicted = "training/rollout_failure/evicted_samples"
    assert not any(step.get(evicted) for step in ended.steps)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_raise_ends_the_run_with_the_reason(mode, world, tmp_path):
    ended = main_ppo(world, tmp_path, mode, mixed(tmp_path), *OFTEN, "+coding.on_ungradable=raise")
    assert ended.code != 0
    assert "coding.on_ungradable=raise" in ended.log
    assert "made to fail" in (tmp_path / "ungradable.jsonl").read_text()


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_an_outage_ends_the_run(mode, world, tmp_path):
    rows = write(tmp_path / "rows.parquet", [eurus(n) for n in range(8)])
    often = [*OFTEN[:1], "+coding.sandbox.kwargs.every=1", *OFTEN[2:]]
    ended = main_ppo(world, tmp_path, mode, rows, *often)
    assert ended.code != 0
    assert "SandboxError: " in ended.log


def test_rows_with_tools_and_a_data_set_of_ones_own_train(world, tmp_path):
    rows = write(tmp_path / "rows.parquet", [with_tool(n) for n in range(8)])
    (tmp_path / "tools.py").write_text(
        "from verl.tools.function_tool import function_tool\n\n\n@function_tool()\n"
        'def double(x: int) -> str:\n    """Double a number.\n\n    Args:\n        x: the number.\n'
        '    """\n    return str(2 * x)\n'
    )
    (tmp_path / "mine.py").write_text(
        "from verl.utils.dataset.rl_dataset import RLHFDataset\n\n\nclass Mine(RLHFDataset):\n"
        "    pass\n"
    )
    own = [f"data.custom_cls.path={tmp_path}/mine.py", "data.custom_cls.name=Mine"]
    tools = [f"{ROLLOUT}.multi_turn.function_tool_path={tmp_path}/tools.py"]
    tools += [f"{ROLLOUT}.multi_turn.max_assistant_turns=2", "data.max_prompt_length=460"]
    tools += [f"{ROLLOUT}.max_model_len=512"]
    ended = main_ppo(world, tmp_path, "sync", rows, *own, *tools)
    assert (ended.code, len(ended.steps)) == (0, STEPS), ended.log[-3000:]
    assert all(step["judge/ran_tests"] == 0 for step in ended.steps)
