"""Bad input answers in one line that names the key and the way out, with exit code 2.

That it answers at once is told by what was imported for it, which the machine's load does not change.
"""

import importlib
import re
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training.rows import rl_rows, write_rows
from coding_model_project.errors import ConfigError
from coding_model_project.extras import RECIPES
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.launch import command_line
from coding_model_project.launch.checks import checks
from coding_model_project.launch.checks.checks import check_dpo
from coding_model_project.launch.command_line import parse
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.types import Instruction, Problem, Stdin, Test
from tests import fresh
from tests.processes import ran
from tests.tables import tables
from tests.text_cases import sources

CASES = tables("recipes")

SOURCES = sources(__file__)

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


CHECKS = {"sft": checks.check_sft, "grpo": checks.check_grpo, "dpo": check_dpo}
"""Checks of each recipe itself, before it imports verl."""


def refusal(*arguments: str, recipe: str = "grpo") -> str:
    """Return how a recipe refuses these arguments, without a process of its own."""
    of_recipe = importlib.import_module(f"recipes.{recipe}.__main__").RECIPE
    with pytest.raises(ConfigError) as caught:
        config = compose_recipe(recipe, [*arguments])
        checks.check_values(config)
        checks.check(config, of_recipe.model_key, of_recipe.make_data)
        CHECKS[recipe](config)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """A user's own files: enough to pass the checks up to the one under test."""
    monkeypatch.chdir(tmp_path)
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


@pytest.mark.parametrize(("override", "says"), CASES["program ends"])
def test_a_program_ends_with_one_line_before_it_imports_anything_heavy(own_files, override, says):
    result = run(*but(own_files, override), override)
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line


def but(overrides, one):
    """Return the overrides of other keys."""
    return [given for given in overrides if given.split("=")[0] != one.split("=")[0]]


@pytest.mark.parametrize(("override", "says"), CASES["naming key"])
def test_one_line_naming_the_key(own_files, override, says):
    assert says in refusal(*but(own_files, override), override)


@pytest.mark.parametrize(("size", "says"), [(33, "=32"), (64, "data.train_files: 40 rows")])
def test_supervised_batches_that_do_not_work_out(own_files, tmp_path, size, says):
    given = [*own_files[:-1], f"model.path={tmp_path}/model", f"data.train_batch_size={size}"]
    assert says in refusal(*given, recipe="sft")


def test_missing_pairs_name_the_command_that_makes_them(own_files, tmp_path):
    given = [*own_files[:4], f"model.path={tmp_path}/model", "data.train_files=none.parquet"]
    assert "python -m coding_model_project data pairs" in refusal(*given, recipe="dpo")


UNKNOWN = (Instruction("punctuation:no_coma"),)


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (replace(MINE, id="mine/2"), "data.train_files: .*problems of mine"),
        (
            replace(MINE, tests=(), instructions=UNKNOWN),
            "coding.problems: problem mine/1.*no_comma",
        ),
    ],
    ids=["of no row", "that no grader can judge"],
)
def test_a_problem_that_does_not_go_with_the_rows_is_refused(own_files, tmp_path, problem, says):
    write_problems(tmp_path / "problems.jsonl", [problem])
    assert re.search(says, refusal(*own_files))


def test_rows_of_another_style_and_rates_of_another_set_are_refused(own_files, tmp_path):
    (tmp_path / "rates.jsonl").write_text('{"id": "mbpp/1", "rate": 0.5}\n')
    online = ["coding.training.sampler=online", f"coding.training.rates={tmp_path}/rates.jsonl"]
    assert re.search("coding.training.rates.*mbpp/1", refusal(*own_files, *online))
    rows = rl_rows([MINE] * 40, PromptStyle.fenced)
    write_rows(tmp_path / "train.parquet", rows, trains=True)
    assert re.search("coding.prompt=bare.*--prompt bare", refusal(*own_files))


@pytest.mark.verl
def test_what_verl_refuses_is_one_line_too_before_any_model_loads(own_files, tmp_path):
    refused = ["algorithm.adv_estimator=gae", "critic.use_dynamic_bsz=false"]
    refused += ["critic.ppo_micro_batch_size_per_gpu=null"]
    command = [sys.executable, "-m", "recipes.grpo", *own_files, *refused]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert "critic" in result.stderr.splitlines()[-1]
    assert "Loading weights" not in result.stderr


def test_a_process_of_its_own_imports_nothing_heavy_either(own_files, tmp_path):
    """The other tests fork one that has imported what a recipe does."""
    arguments = [*own_files[:-1], "actor_rollout_ref.model.path=/nowhere/model"]
    done = ran([sys.executable, "-X", "importtime", "-m", "recipes.grpo", *arguments], cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    imported = {line.split("|")[-1].strip() for line in lines if line.startswith("import time:")}
    assert "hydra" in imported
    assert not imported & HEAVY
    (said,) = (line for line in lines if not line.startswith("import time:"))
    assert said.startswith("error: actor_rollout_ref.model.path")


@pytest.mark.parametrize(("recipe", "override", "says"), CASES["cannot work"])
def test_what_cannot_work_is_refused_before_anything_is_prepared(recipe, override, says, tmp_path):
    (tmp_path / "file").touch()
    result = run("hardware=cpu", "coding.min_memory_gb=0", override, recipe=recipe, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not (tmp_path / "data").exists()


def test_hydras_flags_stand_anywhere():
    shown = run("coding.seed=2", "--cfg", "job", "--package", "coding")
    assert shown.returncode == 0, shown.stderr
    assert yaml.safe_load(shown.stdout)["seed"] == 2
    misspelt = run("--cfg", "job", "--package", "coding", "coding.sed=2")
    assert misspelt.returncode == 2
    assert "did you mean coding.seed?" in misspelt.stderr


EVERY_HELP = SOURCES["every help"]


def test_help_teaches_and_imports_nothing_heavy():
    command = [sys.executable, "-c", EVERY_HELP, *RECIPES]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not set(result.stdout.split()) & (HEAVY | {"hydra", "pyarrow"})


def test_recipes_are_listed():
    command = [sys.executable, "-m", "recipes"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    for name, does in RECIPES.items():
        assert name in listed.stdout and does in listed.stdout
    wrong = subprocess.run([*command, "grop"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "python -m recipes.grpo" in wrong.stderr


# ── the command line, and the members of a sweep ──────────────────────────────────────────────────


LAUNCH = tables("launch")

MEMBERS = "import runpy; runpy.run_module('recipes.grpo', run_name='__main__')"


def test_members_are_named_by_what_is_swept_only():
    names = command_line.member_naming(
        ["experiment=dense,sparse", "coding.seed=1,2", "trainer.nnodes=1"]
    )
    assert "hydra.job.config.override_dirname.exclude_keys=[hardware,trainer.nnodes]" in names


@pytest.mark.parametrize(("bad", "said"), CASES["wrong member"])
def test_a_wrong_member_is_refused_before_any_starts(bad, said):
    with pytest.raises(ConfigError, match=said):
        command_line.check_members("grpo", [bad], ["hardware=cpu"])


@pytest.mark.parametrize("key", ["coding.checkpoints.url", "coding.mirror.url"])
def test_members_that_share_a_url_are_refused_before_any_starts(key, tmp_path):
    given = ["coding.seed=1,2", f"coding.run_dir={tmp_path}"]
    with pytest.raises(ConfigError, match=rf"{key}=s3://b/x: several members.*{{coding.seed}}"):
        command_line.check_members("grpo", [*given, f"{key}=s3://b/x"], ["hardware=cpu"])
    own = "${coding.seed}" if "mirror" in key else "${coding.run_dir}"
    command_line.check_members("grpo", [*given, f"{key}=s3://b/{own}"], ["hardware=cpu"])


def test_a_failed_member_is_one_line_and_the_others_go_on(tmp_path):
    """Two members that fail at their checks, before verl is imported."""
    given = ["coding.dataset=null", "coding.problems=[]", "coding.min_memory_gb=0"]
    given += [f"coding.run_dir={tmp_path}", "actor_rollout_ref.model.path=./nowhere"]
    code = f"import sys; sys.executable = {str(fresh.python())!r}; sys.argv[0] = 'grpo'; {MEMBERS}"
    done = ran([fresh.python(), "-c", code, "-m", "hardware=cpu", "coding.seed=1,2", *given])
    assert done.returncode == 3
    for seed in (1, 2):
        assert f"coding.seed={seed}: in {tmp_path}/coding.seed={seed}\n" in done.stdout
        assert f"error: coding.seed={seed} failed with exit code 2" in done.stderr
    assert "Traceback" not in done.stderr


# ── a recipe's command line: overrides and flags in any order ─────────────────────────────────────


@pytest.mark.parametrize("line", LAUNCH["flags_stand_anywhere"])
def test_flags_stand_anywhere(line):
    found = parse(line.split())
    assert found.overrides == ("coding.seed=2", "~data.seed")
    assert found.hydra in (("--cfg", "job"), ("-c", "job"), ("--cfg=job",))
    assert (found.shows, found.sweeps) == (True, False)


def test_a_sweep_and_values_of_overrides():
    found = parse(["hardware=cpu", "-m", "trainer.save_freq=-1", "coding.seed=1,2"])
    assert found.sweeps
    assert found.value("hardware") == "cpu"
    assert found.value("coding.force") is None


@pytest.mark.parametrize(
    "line", ["--config=r/config.yaml coding.run_dir=n", "coding.run_dir=n --config r/config.yaml"]
)
def test_a_recorded_configuration(line):
    found = parse(line.split())
    assert (found.recorded, found.hydra) == ("r/config.yaml", ())


@pytest.mark.parametrize(("line", "says"), LAUNCH["what_cannot_be_read"])
def test_what_cannot_be_read(line, says):
    with pytest.raises(ConfigError) as caught:
        parse(line.split())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
