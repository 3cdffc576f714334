"""Effects of verl's keys: every claim of docs/verl-command.md against the verl that is installed."""

import json
import re
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from coding_model_project import cli
from coding_model_project.launch.checks import rules
from coding_model_project.launch.verl_keys import table, tree
from coding_model_project.launch.verl_keys.effects import examine
from coding_model_project.launch.verl_keys.table import LEAVE_OUT, Effect
from tests.tables import tables

CASES = tables("launch")

pytestmark = pytest.mark.slow

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
WORKS = CASES["works"]
PAGE = Path(__file__).parents[3] / "docs/verl-command.md"
ROWS = re.findall(r"^\| `(\S+)` \| (\w+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.M)


def effect(*overrides):
    return next(one for one in examine([*WORKS, *overrides]) if one.given == overrides[-1])


def test_a_command_that_works_has_nothing_to_say():
    assert {one.effect for one in examine(WORKS)} == {Effect.taken}


@pytest.mark.parametrize(("old", "word", "write", "here"), ROWS)
def test_the_page(old, word, write, here):
    found = effect(old)
    assert found.effect == word
    assert found.write == write.strip("`")
    assert found.here == (found.write if here == "same" else here.strip("`"))
    if found.write != LEAVE_OUT:  # what is proposed has an effect
        lines = found.write.replace("=T", "=1").split()
        others = [one for one in WORKS if one.split("=")[0] not in found.write]
        assert {one.effect for one in examine([*others, *lines])} == {Effect.taken}


def test_hydra_refuses_what_the_page_says_and_nothing_else():
    accepted = [
        old for old, word, _, _ in ROWS if word != "refused" and "reward_manager=" not in old
    ]
    refused = [old for old, word, _, _ in ROWS if word == "refused"]
    assert len(refused) > 5
    tree.compose_verl("ppo_trainer", accepted)
    for old in (refused[0], next(one for one in refused if one.startswith("+"))):
        with pytest.raises(HydraException):
            tree.compose_verl("ppo_trainer", [old])


@pytest.mark.parametrize(("override", "word", "write"), CASES["keys_by_their_kind"])
def test_keys_by_their_kind(override, word, write):
    found = effect(override)
    assert (found.effect, found.write) == (word, write)


def test_a_misspelt_key_names_only_one_with_an_effect():
    assert f"did you mean {ROLLOUT}.temperature?" in effect(f"{ROLLOUT}.temperatur=1").why
    for fork in ("trainer.rejection_sample", "reward_model.of_a_fork", f"{ROLLOUT}.of_a_fork"):
        assert "did you mean" not in effect(f"{fork}=1").why


def test_this_packages_keys_are_read_with_its_manager_only():
    three = table.OURS.split()
    assert effect(*three, "+coding.prompt=bare").effect is Effect.taken
    refused = effect(*three, "+coding.promt=bare")
    assert refused.effect is Effect.refused
    assert "did you mean coding.prompt?" in refused.why
    assert "expected a list" in effect(*three, "+coding.problems=a.jsonl").why
    buffer = effect(*three, "+reward_model.reward_kwargs.overlong_buffer_cfg.len=9")
    assert buffer.write == "+coding.reward.shaping.overlong_buffer=TOKENS"
    assert effect(*three, "reward.custom_reward_function.path=x.py").effect is Effect.taken


def test_a_choice_of_engine_has_its_own_keys():
    keys = ["model_engine=megatron", f"{ACTOR}.megatron.param_offload=True"]
    assert {one.effect for one in examine([*WORKS, *keys])} == {Effect.taken}
    assert effect("model_engine=nothing").effect is Effect.refused


def test_a_file_of_ones_own_adds_keys_that_nobody_reads():
    own = OmegaConf.create({"defaults": ["ppo_trainer"], "trainer": {"mine": 1, "nnodes": 2}})
    found = {one.key: one.effect for one in examine([*WORKS, "trainer.mine=2"], own=own)}
    assert found["trainer.mine"] is Effect.ignored
    assert found["trainer.nnodes"] is Effect.taken


def test_the_last_line_is_for_programs(capsys):
    command = f"python3 -m own.main {' '.join(WORKS[1:])} trainer.mine=1 data.truncation=error"
    assert cli.main(["doctor", "--json", "--verl-overrides", command]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    write = {"trainer.mine": "leave out", "data.truncation": "data.filter_overlong_prompts=True"}
    assert found.pop("write") == write
    assert (found.pop("verl"), found.pop("entry")) == (tree.version(), "own.main")
    assert found == {"refused": ["trainer.mine"], "ignored": ["data.truncation"], "late": []}
    assert cli.main(["doctor", "--verl-overrides", " ".join(WORKS)]) == 0
    assert f"{len(WORKS)} taken" in capsys.readouterr().out


@pytest.mark.verl
def test_verl_itself_agrees():
    """The tables against verl's code: rewards, dataclasses and registered words."""
    import verl.experimental.reward_loop.reward_manager  # noqa: F401 - registers them
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo import core_algos, reward, rollout_corr_helper
    from verl.utils.config import omega_conf_to_dataclass
    from verl.utils.tracking import Tracking
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    config = tree.compose_verl("ppo_trainer", [])
    OmegaConf.set_struct(config, False)
    config.custom_reward_function.path = "/no/such.py"
    config.reward_model.reward_manager = "prime"
    assert reward.get_custom_reward_fn(config) is None
    assert reward.resolve_reward_manager_cls(config).__name__ == "NaiveRewardManager"
    config.reward.reward_manager.name = "prime"
    with pytest.raises(ValueError, match="prime"):
        reward.resolve_reward_manager_cls(config)
    config[f"{ACTOR.split('.')[0]}"].actor.ppo_micro_batch_size_per_gpu = 1
    omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    config.actor_rollout_ref.actor.of_a_fork = 1
    with pytest.raises(Exception, match="of_a_fork"):
        omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert {name for name, _ in _ROLLOUT_REGISTRY} == {"vllm", "sglang", "trtllm"}
    assert set(REWARD_MANAGER) == set(table.MANAGERS)
    known = {row.key: {*row.words} for row in table.words()}
    estimators = {str(name) for name in core_algos.ADV_ESTIMATOR_REGISTRY}
    assert estimators == known["algorithm.adv_estimator"]
    assert estimators > {*rules.table()[1]}
    criteria = known["algorithm.rollout_correction.rollout_rs"]
    assert criteria == rollout_corr_helper.SUPPORTED_ROLLOUT_RS_OPTIONS
    losses = known["actor_rollout_ref.actor.policy_loss.loss_mode"]
    assert losses == set(core_algos.POLICY_LOSS_REGISTRY)
    assert known["trainer.logger"] == set(Tracking.supported_backend)
