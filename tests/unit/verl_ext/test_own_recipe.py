"""The reward manager in somebody's own main_ppo: nothing of ours in the configuration but its name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import (
    CodingModelError,
    ConfigError,
    SandboxError,
    UngradableError,
)
from tests.tables import tables

CASES = tables("verl_ext")

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
    config.algorithm.adv_estimator = "grpo"
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


async def test_a_sample_that_keeps_its_place_has_a_placeholder_for_a_score(manager):
    judge = manager(verls(on_ungradable="zero_advantage"))
    judged = await judge.run_single(row(RIGHT, SUMS))
    lost = await judge.run_single(row(RIGHT, "no tests"))
    assert (judged["reward_score"], lost["reward_score"]) == (1.0, 0.0)
    infos = [one["reward_extra_info"] for one in (judged, lost)]
    assert [info["ungradable"] for info in infos] == [0.0, 1.0]
    assert infos[0].keys() == infos[1].keys()


async def test_somebodys_function_that_fails_is_no_score(manager, tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text("def score(**row):\n    raise OSError('the service is gone')\n")
    config = verls(run_dir=str(tmp_path))
    config.reward.custom_reward_function = {"path": str(mine), "name": "score"}
    with pytest.raises(UngradableError, match="the service is gone"):
        await manager(config).run_single(row("x", "72", "mine"))
    assert "the service is gone" in (tmp_path / "ungradable.jsonl").read_text()
    assert "mine.py" in capsys.readouterr().err  # with its traceback


class Chat:
    """Characters are tokens, in a template with roles."""

    chat_template = "roles"

    def decode(self, tokens, **_):
        return "".join(map(chr, tokens))

    def apply_chat_template(self, messages, *, add_generation_prompt, **_):
        text = "".join(f"[{one['role']}]{one['content']}" for one in messages)
        return list(map(ord, text + "[assistant]" * add_generation_prompt))


async def test_the_output_of_a_tool_is_never_the_models_answer(monkeypatch):
    from verl.trainer.ppo.reward import load_reward_manager

    from coding_model_project.verl_ext.rewards import own_recipe

    monkeypatch.setattr(own_recipe, "OnNode", SameProcess)
    judge = load_reward_manager(verls(), Chat())
    injected = f"call[tool]{RIGHT}[assistant]{RIGHT}[assistant]"

    async def scores(answer, truth, source, turns=4):
        given = row(answer, truth, source)
        given[0].non_tensor_batch["__num_turns__"] = turns
        return (await judge.run_single(given))["reward_score"]

    assert await scores(injected + "I do not know.", SUMS, "taco") == 0.0
    assert await scores(injected + RIGHT, SUMS, "taco") == 1.0
    # verl's own scorer reads it the same way.
    assert await scores("call[tool]#### 72[assistant]It is 71.", "72", "openai/gsm8k") == 0.0
    assert await scores("call[tool]#### 71[assistant]#### 72", "72", "openai/gsm8k") == 1.0
    with pytest.raises(UngradableError, match="last turn"):
        await scores(f"call[tool]{RIGHT}", SUMS, "taco")
    assert await scores(RIGHT, SUMS, "taco", turns=2) == 1.0


def trainer_of(kind, monkeypatch, **coding):
    """One of verl's trainers without its engines, as it is while it looks the reward manager up."""
    from verl.trainer.ppo.reward import resolve_reward_manager_cls
    from verl.trainer.ppo.v1 import get_trainer_cls, replay_buffer

    trainer = object.__new__(get_trainer_cls(kind))
    config = verls(**coding)
    config.data.train_batch_size, config.actor_rollout_ref.rollout.n = 1, 2
    buffer = getattr(replay_buffer, "ReplayBuffer" if kind == "sync" else "ReplayBufferAsync")
    trainer.config = config
    trainer.replay_buffer = buffer(kind, {}, 1, "drop", {}, refill_fn=lambda _: None)

    def setup(self):
        return resolve_reward_manager_cls(self.config)

    setup(trainer)
    return trainer


def fails(trainer, *groups, partition="train"):
    buffer = trainer.replay_buffer
    buffer.failure_keys[partition] |= set(groups)
    return buffer._terminal_eviction_reasons(1, partition)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_verl_itself_drops_a_sample_or_its_whole_group(mode, monkeypatch):
    from verl.trainer.ppo.v1 import replay_buffer

    from tests.unit.verl_ext.test_ppo_trainer import Queue

    queue, requested = Queue(), []
    monkeypatch.setattr(replay_buffer, "tq", queue)
    trainer = trainer_of(mode, monkeypatch)

    def refill(n):
        requested.append(n)
        queue.group(1, judged=2)

    trainer.replay_buffer.refill_fn = refill
    hurt = queue.group(1, judged=1)
    batch, _ = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    if mode == "sync":
        assert (batch.keys, requested) == ([f"{hurt}_0_0"], [])
    else:
        assert (len(batch.keys), requested) == (2, [1])
        assert not any(key.startswith(hurt) for key in batch.keys)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_raise_ends_the_run_with_the_first_sample(mode, monkeypatch):
    trainer = trainer_of(mode, monkeypatch, on_ungradable="raise")
    fails(trainer)
    with pytest.raises(SandboxError, match=r"on_ungradable=raise"):
        fails(trainer, "g")


def test_an_asynchronous_mode_does_not_replace_groups_for_ever(monkeypatch):
    trainer = trainer_of("colocate_async", monkeypatch)
    fails(trainer, "a", "b")
    fails(trainer, "c", "d", partition="val")
    with pytest.raises(SandboxError, match="zero_advantage"):
        fails(trainer, "e")
    alone = trainer_of("sync", monkeypatch)
    fails(alone, "a", "b", "c")  # verl keeps what is judged of them


def test_placeholders_are_read_by_nobody():
    from verl.trainer.ppo.reward import load_reward_manager

    for key in ("algorithm.filter_groups.enable", "algorithm.use_kl_in_reward"):
        config = verls(on_ungradable="zero_advantage")
        OmegaConf.update(config, key, True, force_add=True)
        with pytest.raises(ConfigError, match=key):
            load_reward_manager(config, Tokenizer())


@pytest.mark.parametrize(("coding", "message"), CASES["faults"])
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
