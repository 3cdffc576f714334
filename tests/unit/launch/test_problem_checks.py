"""Rows of another prompt style than the run's are refused by the manifest beside them."""

import pytest
from omegaconf import OmegaConf

from coding_model_project.data.training.rows import rl_rows, style_of_rows, write_rows
from coding_model_project.data.training.training_files import Plan, RowKind, write_training_files
from coding_model_project.episodes.bash_config import BashConfig
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor.harbor_config import AgentConfig
from coding_model_project.launch.checks import problem_checks
from coding_model_project.types import Problem, Stdin, Test


def config(style, turns=0):
    bash = OmegaConf.structured(BashConfig)
    bash.turns = turns
    coding = {"prompt": style, "training": {"rates": None}, "bash": bash}
    coding |= {"reward": {"shaping": {"length_weight": 0.0}}}
    coding["agent"] = OmegaConf.structured(AgentConfig)
    return OmegaConf.create({"coding": coding, "data": {"prompt_key": "prompt"}})


def made(folder, style, **fields):
    """Write rows as `data rows` does; return their problems and their file."""
    fields = {
        "statement": "Print 1.",
        "tests": (Test(input=Stdin(""), expected="1"),),
        "gold": ("print(1)",),
    } | fields
    problems = [Problem(id="mine/1", split="train", **fields)]
    write_training_files(problems, folder, Plan(style=style))
    return problems, [str(folder / "rl_train.parquet")]


@pytest.mark.parametrize("style", PromptStyle)
def test_rows_of_the_runs_style_pass_and_others_are_refused(tmp_path, style):
    problems, paths = made(tmp_path, style)
    problem_checks.check(config(style), problems, paths)
    (other,) = set(PromptStyle) - {style}
    with pytest.raises(ConfigError) as refused:
        problem_checks.check(config(other), problems, paths)
    for word in (f"coding.prompt={other}: ", paths[0], f"--prompt {other}", f"prompt={style}"):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "turns"),
    [({"statement": "Print 1, in a code block."}, 0), ({"tests": (), "answer": "1"}, 0), ({}, 3)],
    ids=["asks for a fence", "needs none", "an agent's"],
)
def test_bare_rows_whose_style_does_not_matter_pass(tmp_path, fields, turns):
    problems, paths = made(tmp_path, PromptStyle.bare, **fields)
    problem_checks.check(config(PromptStyle.fenced, turns), problems, paths)


def test_a_manifest_of_other_content_says_nothing(tmp_path):
    problems, paths = made(tmp_path, PromptStyle.bare)
    file = tmp_path / "rl_train.parquet"
    assert style_of_rows(file) is PromptStyle.bare
    write_rows(file, rl_rows(problems * 2, PromptStyle.bare), trains=True)
    assert style_of_rows(file) is None
    problem_checks.check(config(PromptStyle.fenced), problems, paths)
    (tmp_path / "manifest.json").write_text("[]")
    assert style_of_rows(file) is None


def test_each_file_of_a_folder_has_the_style_of_its_own_command(tmp_path):
    problems, paths = made(tmp_path, PromptStyle.bare)
    write_training_files(problems, tmp_path, Plan(kind=RowKind.sft, style=PromptStyle.fenced))
    assert style_of_rows(tmp_path / "rl_train.parquet") is PromptStyle.bare
    assert style_of_rows(tmp_path / "sft_train.parquet") is PromptStyle.fenced
    with pytest.raises(ConfigError, match=r"coding\.prompt=fenced: the rows"):
        problem_checks.check(config(PromptStyle.fenced), problems, paths)
    write_training_files(problems, tmp_path, Plan(style=PromptStyle.fenced))
    assert style_of_rows(tmp_path / "rl_train.parquet") is PromptStyle.fenced
