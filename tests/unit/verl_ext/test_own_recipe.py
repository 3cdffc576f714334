"""The reward manager in somebody's own main_ppo: nothing of ours in the configuration but its name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import CodingModelError, ConfigError, UngradableError

pytestmark = [pytest.mark.verl, pytest.mark.sandbox]

SUMS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
HALF = "```python\nprint(3)\n```"


class Tokenizer:
    """Characters are tokens."""

    def decode(self, tokens, **_):
        return "".join(map(chr, tokens))


def verls(**coding):
    """verl's own configuration, as `main_ppo` composes it."""
    import verl

    tree = Path(verl.__file__).parent / "trainer/config/_generated_ppo_trainer.yaml"
    config = OmegaConf.load(tree)
    config.reward.reward_manager.source = "importlib"
    config.reward.reward_manager.name = "CodeRewardManager"
    config.reward.reward_manager.module.path = "pkg://coding_model_project.verl_reward"
    config.coding = {"sandbox": {"workers": 1}} | coding
    return config


class SameProcess:
    """The node's judge without Ray."""

    def __init__(self, actor, *arguments, **_):
        self.actor = actor(*arguments)

    async def call(self, method, *arguments):
        return await getattr(self.actor, method)(*arguments)


@pytest.fixture
def manager(monkeypatch):
    from verl.trainer.ppo.reward import load_reward_manager

    from coding_model_project.verl_ext.rewards import own_recipe

    monkeypatch.setattr(own_recipe, "OnNode", SameProcess)
    return lambda config: load_reward_manager(config, Tokenizer())


def row(answer, truth, data_source="taco"):
    import torch

    tokens = torch.tensor(list(map(ord, answer)))
    mask = torch.ones(len(tokens) + 1, dtype=torch.long)
    about = {"data_source": data_source, "reward_model": {"ground_truth": truth}, "extra_info": {}}
    item = SimpleNamespace(
        batch={"responses": tokens, "attention_mask": mask}, non_tensor_batch=about
    )

    class Rows(list):
        def __getitem__(self, key):
            found = list.__getitem__(self, key)
            return Rows(found) if isinstance(key, slice) else found

    return Rows([item])


async def test_rows_with_tests_are_run_and_verls_own_scorers_keep_theirs(manager):
    judge = manager(verls(reward={"kind": "dense"}))
    full = await judge.run_single(row(RIGHT, json.dumps(SUMS)))
    half = await judge.run_single(row(HALF, SUMS, "mine"))
    maths = await judge.run_single(row("I think\n#### 72", "72", "openai/gsm8k"))
    assert [one["reward_score"] for one in (full, half, maths)] == [1.0, 0.5, 1.0]
    infos = [one["reward_extra_info"] for one in (full, half, maths)]
    assert half["reward_extra_info"]["wrong_answer"] == 1.0
    assert [info["acc"] for info in infos] == [1.0, 0.0, 1.0]
    # verl aggregates validation only if all rows have the same numbers.
    assert len({tuple(info) for info in infos}) == 1
    assert all(isinstance(value, float) for info in infos for value in info.values())


async def test_what_nobody_can_judge_is_left_out_with_its_reason(manager, capsys, tmp_path):
    judge = manager(verls())
    with pytest.raises(CodingModelError, match=r"data_source=mine.*custom_reward_function"):
        await judge.run_single(row("x", "mbpp/1", "mine"))
    assert "left out" in capsys.readouterr().err
    # verl's own scorer would run these programs on this machine.
    with pytest.raises(CodingModelError, match="ground_truth"):
        await judge.run_single(row(RIGHT, "no tests", "codecontests"))
    noted = manager(verls(run_dir=str(tmp_path)))
    with pytest.raises(CodingModelError):
        await noted.run_single(row(RIGHT, "no tests", "apps"))
    assert "no tests" in (tmp_path / "ungradable.jsonl").read_text()


async def test_raise_fails_all_later_samples(manager):
    judge = manager(verls(on_ungradable="raise"))
    with pytest.raises(UngradableError):
        await judge.run_single(row(RIGHT, "no tests"))
    with pytest.raises(UngradableError, match="on_ungradable=raise"):
        await judge.run_single(row(RIGHT, SUMS))


@pytest.mark.parametrize(
    ("coding", "message"),
    [
        ({"promt": "bare"}, "promt"),
        ({"problems": ["problems.jsonl"]}, "absolute"),
        ({"problems": ["/no/such.jsonl"]}, r"coding\.problems=/no/such\.jsonl"),
        ({"on_ungradable": "zero_advantage"}, "drop or raise"),
        ({"reward": {"kind": "dens"}}, "kind"),
    ],
)
def test_a_fault_ends_the_run_where_verl_resolves_the_class(coding, message):
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    with pytest.raises(ConfigError, match=message) as caught:
        resolve_reward_manager_cls(verls(**coding))
    assert "\n" not in str(caught.value)


def test_who_scores_what_is_said(capsys):
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    config = verls()
    config.reward.custom_reward_function.path = "/mine.py"
    resolve_reward_manager_cls(config)
    assert "/mine.py scores all other rows" in capsys.readouterr().out
