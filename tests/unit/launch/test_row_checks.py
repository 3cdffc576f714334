"""Rows that are too long for the configured lengths are refused before anything heavy starts."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from coding_model_project.data.training.rows import rl_rows, style_of_rows, write_rows
from coding_model_project.data.training.training_files import Plan, write_training_files
from coding_model_project.episodes.bash import BashConfig
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor.harbor_config import AgentConfig
from coding_model_project.launch.checks import row_checks
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.types import Problem, Stdin, Test

MODEL_LEN = "actor_rollout_ref.rollout.max_model_len"


def talk(*words):
    """A conversation whose messages have so many words."""
    roles = ("user", "assistant")
    return [{"role": role, "content": "x " * n} for role, n in zip(roles, words, strict=False)]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A model with a chat template, whose tokens are words, and three per message."""
    template = {"chat_template": "{% for message in messages %}…{% endfor %}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(template))
    words = lambda messages: sum(len(one["content"].split()) + 3 for one in messages)  # noqa: E731
    monkeypatch.setattr(row_checks, "_counter", lambda *_: words)

    def make(recipe, rows, *overrides):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        key = "actor_rollout_ref.model.path" if recipe == "grpo" else "model.path"
        given = ["hardware=cpu", f"{key}={tmp_path}", *overrides]
        return compose_recipe(recipe, given), [str(tmp_path / "rows.parquet")]

    return make


def refusal(config, paths):
    with pytest.raises(ConfigError) as caught:
        row_checks.check_lengths(config, paths)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_prompts_that_are_too_long_name_both_keys_to_set(world):
    rows = [{"prompt": talk(n)} for n in (50, 100, 140)]
    said = refusal(*world("grpo", rows))
    assert said.startswith("data.max_prompt_length=96: 2 of 3 prompts") and "longest 143" in said
    assert said.endswith(f"set data.max_prompt_length=160 {MODEL_LEN}=256")
    assert refusal(*world("grpo", rows, f"{MODEL_LEN}=512")).endswith("_length=160")
    assert row_checks.check_lengths(*world("grpo", [{"prompt": talk(93)}])) == 96 + 96  # just fits
    longer = world("grpo", rows, "data.max_prompt_length=160", f"{MODEL_LEN}=256")
    assert row_checks.check_lengths(*longer) == 143 + 96


def test_the_longest_rows_of_a_large_set_are_counted(world, monkeypatch):
    monkeypatch.setattr(row_checks, "_MOST", 4)
    rows = [{"prompt": talk(n)} for n in (50, 100, 60, 70, 140, 80)]
    assert "2 of the 4 longest prompts" in refusal(*world("grpo", rows))


def test_conversations_of_sft(world):
    rows = [{"messages": talk(100, 50)}, {"messages": talk(150, 80)}]
    said = refusal(*world("sft", rows))
    assert said.startswith("data.max_length=192: 1 of 2 conv") and "longest 236" in said
    assert said.endswith("set data.max_length=256")
    assert row_checks.check_lengths(*world("sft", rows, "data.max_length=512")) == 236
    assert row_checks.check_lengths(*world("sft", rows, "data.truncation=right")) is None


def test_long_pairs_are_set_aside_unless_all_are_too_long(world):
    rows = [{"prompt": talk(50), "chosen": "x " * n, "rejected": "x"} for n in (20, 200)]
    assert row_checks.check_lengths(*world("dpo", rows)) == 2 * 192
    assert "4 of 4 conversations" in refusal(*world("dpo", rows, "data.max_length=40"))


def test_references_longer_than_a_response_are_printed(world, capsys):
    config, paths = world("grpo", [{"prompt": talk(50)}])
    tests = (Test(input=Stdin(""), expected="1"),)
    problem = Problem(id="a/1", split="train", statement="x", tests=tests, gold=("x " * 120,))
    row_checks.check_lengths(config, paths, [problem])
    assert f"set data.max_response_length=128 {MODEL_LEN}=224" in capsys.readouterr().out


def test_the_embedded_model_is_not_loaded_for_its_own_rows(world):
    config, paths = world("grpo", [{"prompt": talk(200)}])
    config.actor_rollout_ref.model.path = "data/tinycode/base"
    assert row_checks.check_lengths(config, paths) is None


@pytest.mark.verl
def test_tokens_are_those_of_the_models_tokenizer_and_template(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"x": 0, "user": 1, "go": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    template = (
        "{% for one in messages %}{{ one.role }} {{ one.content }} {% endfor %}"
        "{% if add_generation_prompt %}go{% endif %}"
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    pq.write_table(pa.Table.from_pylist([{"prompt": talk(100)}]), tmp_path / "rows.parquet")
    given = ["hardware=cpu", f"actor_rollout_ref.model.path={tmp_path}"]
    said = refusal(compose_recipe("grpo", given), [str(tmp_path / "rows.parquet")])
    assert "(the longest 102)" in said

    own = f'actor_rollout_ref.model.custom_chat_template="{template} x x"'
    said = refusal(compose_recipe("grpo", [*given, own]), [str(tmp_path / "rows.parquet")])
    assert "(the longest 104)" in said


# ── rows of another prompt style than the run's are refused by the manifest beside them ───────────


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
    row_checks.check_problems(config(style), problems, paths)
    (other,) = set(PromptStyle) - {style}
    with pytest.raises(ConfigError) as refused:
        row_checks.check_problems(config(other), problems, paths)
    for word in (f"coding.prompt={other}: ", paths[0], f"--prompt {other}", f"prompt={style}"):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "turns"),
    [({"statement": "Print 1, in a code block."}, 0), ({"tests": (), "answer": "1"}, 0), ({}, 3)],
    ids=["asks for a fence", "needs none", "an agent's"],
)
def test_bare_rows_whose_style_does_not_matter_pass(tmp_path, fields, turns):
    problems, paths = made(tmp_path, PromptStyle.bare, **fields)
    row_checks.check_problems(config(PromptStyle.fenced, turns), problems, paths)


def test_a_manifest_of_other_content_says_nothing(tmp_path):
    problems, paths = made(tmp_path, PromptStyle.bare)
    file = tmp_path / "rl_train.parquet"
    assert style_of_rows(file) is PromptStyle.bare
    write_rows(file, rl_rows(problems * 2, PromptStyle.bare), trains=True)
    assert style_of_rows(file) is None
    row_checks.check_problems(config(PromptStyle.fenced), problems, paths)
    (tmp_path / "manifest.json").write_text("[]")
    assert style_of_rows(file) is None
