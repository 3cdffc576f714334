"""Bad input answers in one line that names the key and the way out, with exit code 2.

That it answers at once is told by what was imported for it, which the machine's load does not change.
"""

import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.program import RECIPES
from coding_model_project.types import Instruction, Problem, Stdin, Test
from tests import fresh

pytestmark = pytest.mark.slow

MINE = Problem(
    id="mine/1", split="train", statement="x", tests=(Test(input=Stdin(""), expected="1"),)
)
HEAVY = {"torch", "verl", "ray", "vllm", "transformers"}


def run(*arguments: str, recipe: str = "grpo", cwd=None) -> fresh.Ended:
    """Run a recipe that must end before it imports anything heavy."""
    result = fresh.run(f"recipes.{recipe}", *arguments, cwd=cwd)
    assert not result.imported & HEAVY
    return result


@pytest.fixture
def own_files(tmp_path):
    """A user's own files: enough to pass the checks up to the one under test."""
    row = {"data_source": "mine", "prompt": [{"role": "user", "content": "x"}]}
    row["extra_info"] = {"split": "train"}
    row["reward_model"] = {"style": "rule", "ground_truth": "mine/1"}
    pq.write_table(pa.Table.from_pylist([row] * 40), tmp_path / "train.parquet")
    pq.write_table(
        pa.Table.from_pylist([row | {"data_source": "humaneval"}]), tmp_path / "mixed.parquet"
    )
    write_problems(tmp_path / "problems.jsonl", [MINE])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return [
        "hardware=cpu",
        "coding.dataset=null",
        "coding.min_memory_gb=0",
        f"coding.problems=[{tmp_path}/problems.jsonl]",
        f"data.train_files={tmp_path}/train.parquet",
        f"data.val_files={tmp_path}/train.parquet",
        f"actor_rollout_ref.model.path={tmp_path}/model",
    ]


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("coding.reward.knd=dense", "coding.reward.kind"),
        ("coding.reward.kind=foo", "dense, sparse"),
        ("trainer.total_training_step=3", "trainer.total_training_steps"),
        ("hardware=tpu", "cpu gpu_1x gpu_8x"),
        ("custom_reward_function.path=x.py", "custom_reward_function"),
        ("reward_model.enable=true", "reward_model"),
        ("coding.min_memory_gb=100000", "coding.min_memory_gb"),
        ("actor_rollout_ref.model.path=/nowhere/model", "actor_rollout_ref.model.path"),
        ("data.train_files=/nowhere/train.parquet", "data.train_files"),
        ("data.train_files=/nowhere/humaneval.parquet", "test only"),
        ("coding.problems=[/nowhere/problems.jsonl]", "coding.problems"),
        ("coding.sandbox.name=nowhere:Sandbox", "coding.sandbox.name"),
    ],
)
def test_one_line_naming_the_key(own_files, override, says, tmp_path):
    replaced = [a for a in own_files if a.split("=")[0] != override.split("=")[0]]
    result = run(*replaced, override, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line


@pytest.mark.parametrize(
    ("recipe", "override", "says"),
    [
        ("grpo", "data.train_batch_size=33", "set data.train_batch_size=32"),
        ("sft", "data.train_batch_size=33", "set data.train_batch_size=32"),
        ("sft", "data.train_batch_size=64", "data.train_files: 40 rows"),
    ],
)
def test_batches_that_do_not_work_out(own_files, recipe, override, says, tmp_path):
    key = {"sft": "model.path", "grpo": "actor_rollout_ref.model.path"}[recipe]
    arguments = [*own_files[:-1], f"{key}={tmp_path}/model", f"coding.run_dir={tmp_path}/run"]
    result = run(*arguments, override, recipe=recipe, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert says in line


def test_missing_pairs_name_the_command_that_makes_them(own_files, tmp_path):
    kept = [*own_files[:4], f"model.path={tmp_path}/model"]
    result = run(*kept, "data.train_files=none.parquet", recipe="dpo", cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "no file none.parquet; make it with `python -m coding_model_project data pairs" in line


def test_a_row_whose_problem_is_nowhere_is_refused_by_source(own_files, tmp_path):
    write_problems(tmp_path / "problems.jsonl", [replace(MINE, id="mine/2")])
    result = run(*own_files, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "data.train_files" in line
    assert "add the file with the problems of mine" in line


def test_a_problem_that_no_grader_can_judge_is_refused(own_files, tmp_path):
    unknown = Instruction("punctuation:no_coma")
    write_problems(tmp_path / "problems.jsonl", [replace(MINE, tests=(), instructions=(unknown,))])
    result = run(*own_files, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "coding.problems: problem mine/1" in line
    assert "punctuation:no_comma" in line


def test_code_golf_without_a_reference_is_refused(own_files, tmp_path):
    result = run(*own_files, "experiment=golf", cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "coding.reward.shaping.length_weight" in line
    assert "reference solution" in line


def test_prompts_of_another_style_than_the_run_are_refused(own_files, tmp_path):
    rows = rl_rows([MINE] * 40, PromptStyle.fenced)
    write_rows(tmp_path / "train.parquet", rows, trains=True)
    result = run(*own_files, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "coding.prompt=bare" in line
    assert "--prompt bare" in line


def test_rates_of_another_data_set_are_refused(own_files, tmp_path):
    (tmp_path / "rates.jsonl").write_text('{"id": "mbpp/1", "rate": 0.5}\n')
    online = ["coding.training.sampler=online", f"coding.training.rates={tmp_path}/rates.jsonl"]
    result = run(*own_files, *online, cwd=tmp_path)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "coding.training.rates" in line
    assert "it has mbpp/1, the training rows mine/1" in line


@pytest.mark.verl
def test_what_verl_refuses_is_one_line_too_before_any_model_loads(own_files, tmp_path):
    refused = ["algorithm.adv_estimator=gae", "critic.use_dynamic_bsz=false"]
    refused += ["critic.ppo_micro_batch_size_per_gpu=null"]
    command = [sys.executable, "-m", "recipes.grpo", *own_files, *refused]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert "critic" in result.stderr.splitlines()[-1]
    assert "Loading weights" not in result.stderr


def test_test_only_rows_are_refused_whatever_the_file_is_called(own_files, tmp_path):
    replaced = [a for a in own_files if not a.startswith("data.train_files")]
    result = run(*replaced, f"data.train_files={tmp_path}/mixed.parquet", cwd=tmp_path)
    assert result.returncode == 2
    assert "humaneval" in result.stderr
    assert "test only" in result.stderr


def test_a_process_of_its_own_imports_nothing_heavy_either(own_files, tmp_path):
    """The other tests fork one that has imported what a recipe does."""
    arguments = [*own_files[:-1], "actor_rollout_ref.model.path=/nowhere/model"]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "recipes.grpo", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    imported = {line.split("|")[-1].strip() for line in lines if line.startswith("import time:")}
    assert "hydra" in imported
    assert not imported & HEAVY
    (said,) = (line for line in lines if not line.startswith("import time:"))
    assert said.startswith("error: actor_rollout_ref.model.path")


@pytest.mark.parametrize(
    ("recipe", "override", "says"),
    [
        ("grpo", "actor_rollout_ref.rollout.n=1", "set actor_rollout_ref.rollout.n to 2 or more"),
        ("grpo", "actor_rollout_ref.actor.optim.lr=fast", "optim.lr=fast: set it to a number"),
        ("grpo", "+coding.sed=2", "+coding.sed=2: no such key; did you mean coding.seed?"),
        ("grpo", "data.train_files=/nowhere.parquet", "data.train_files: no file /nowhere.parquet"),
        ("grpo", "coding.run_dir=/proc/x", "coding.run_dir=/proc/x: cannot be written"),
        ("grpo", "coding.data_dir=/proc/x", "coding.data_dir=/proc/x: cannot be written"),
        ("harbor", "coding.run_dir=file", "is a file, not a folder; set coding.run_dir to"),
        ("baseline", "coding.sandbox.max_failure_rate=1.5", "set it to a share between 0 and 1"),
        (
            "pipeline",
            'grpo.overrides=["coding.sed=2"]',
            "grpo.overrides: coding.sed=2: no such key",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_prepared(recipe, override, says, tmp_path):
    (tmp_path / "file").touch()
    result = run("hardware=cpu", "coding.min_memory_gb=0", override, recipe=recipe, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("flags_first", [True, False])
def test_hydras_flags_stand_anywhere(flags_first):
    flags, override = ["--cfg", "job", "--package", "coding"], ["coding.seed=2"]
    shown = run(*flags, *override) if flags_first else run(*override, *flags)
    assert shown.returncode == 0, shown.stderr
    assert yaml.safe_load(shown.stdout)["seed"] == 2
    misspelt = run(*flags, "coding.sed=2") if flags_first else run("coding.sed=2", *flags)
    assert misspelt.returncode == 2
    assert "did you mean coding.seed?" in misspelt.stderr


@pytest.mark.parametrize("recipe", RECIPES)
def test_help_teaches(recipe):
    help_only = [sys.executable, "-X", "importtime", "-m", f"recipes.{recipe}", "--help"]
    result = subprocess.run(help_only, capture_output=True, text=True, check=True)
    assert f"python -m recipes.{recipe}" in result.stdout
    imported = {line.split("|")[-1].strip() for line in result.stderr.splitlines()}
    assert not imported & (HEAVY | {"hydra", "pyarrow"})


def test_recipes_are_listed():
    listed = subprocess.run(
        [sys.executable, "-m", "recipes"], capture_output=True, text=True, check=True
    )
    for name, does in RECIPES.items():
        assert name in listed.stdout
        assert does in listed.stdout
    command = [sys.executable, "-m", "recipes", "grop"]
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "python -m recipes.grpo" in wrong.stderr
