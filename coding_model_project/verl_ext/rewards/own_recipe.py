"""Reward manager for other people's verl recipes; `coding_model_project.verl_reward` is the door.

Each worker asks the node's one judge. Rows without tests that this package can run get their score as in
verl's naive manager.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

from coding_model_project.configs.schema import CodingConfig, OnUngradable, coding_beside
from coding_model_project.errors import ConfigError, DataError, UngradableError
from coding_model_project.grading.judge import make_sandbox
from coding_model_project.grading.rewards import reward_function
from coding_model_project.grading.shaping import Answer, Shaping, shaped
from coding_model_project.harbor.harbor_config import Integrity, require
from coding_model_project.types import ERROR_GROUPS, Problem, Verdict
from coding_model_project.verl_ext.rewards.judging import (
    JudgePool,
    ModelsTurn,
    last_response,
    leaving_out,
)
from coding_model_project.verl_ext.rewards.on_node import OnNode
from coding_model_project.verl_ext.rewards.own_scorers import PROGRAMS

UNGRADABLE = "ungradable"
"""Key of a sample's numbers: 1 if its score is a placeholder, which `JudgedTrainer` lets nobody read."""

TestsIn = Callable[[object], Problem]
"""A function that reads the tests that a row's ground truth holds (`integrations.verl.tests_in`)."""


def settings(config: DictConfig) -> tuple[CodingConfig, OnUngradable]:
    """Return the checked settings of a verl configuration, all of which are optional.

    Raises:
        ConfigError: one is wrong; the message names its key.
    """
    coding, on_ungradable = coding_beside(config)
    for path in coding.problems:
        if not Path(path).is_absolute() or not Path(path).is_file():
            why = "no such file" if Path(path).is_absolute() else "workers run in other folders"
            raise ConfigError(
                f"coding.problems={path}: {why}; set +coding.problems=[FILE] to an absolute path that "
                "every node has"
            )
    if coding.run_dir and not Path(coding.run_dir).is_absolute():
        raise ConfigError(f"coding.run_dir={coding.run_dir}: set it to an absolute path")
    make_sandbox(coding.sandbox)
    most = int(OmegaConf.select(config, "data.max_response_length") or 0)
    Shaping.of(coding.reward, style=coding.prompt, max_tokens=most)
    return coding, on_ungradable


class AnyRecipeManager(RewardManagerBase):
    """A reward manager for any `main_ppo`: programs are judged in the sandbox, once per node.

    A row's `reward_model.ground_truth` is the id of a problem in `coding.problems`, or holds tests. All
    other rows go to `reward.custom_reward_function`, else to verl's own scorer for their `data_source`.
    """

    tests_in: TestsIn

    def __init__(
        self,
        config: DictConfig,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
        **_: Any,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        coding, self._on_ungradable = settings(config)
        naive: Any = NaiveRewardManager  # its decorator loses its signature
        self._turns = ModelsTurn(tokenizer)
        self._others = naive(
            config, self._turns, compute_score, reward_router_address, reward_model_tokenizer
        )
        most = config.data.max_response_length
        scorer = (NodeScorer, coding, most, type(self).tests_in)
        self._node = OnNode(*scorer, name="judge of coding-model-project", task="judges programs")
        self._run_dir = Path(coding.run_dir) if coding.run_dir else None

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Judge one trajectory.

        Returns:
            `reward_score`, and `reward_extra_info` with the same numbers for every row.

        Raises:
            UngradableError: there is no truthful score.
        """
        about = cast(Any, data[-1:])[0].non_tensor_batch
        try:
            with leaving_out(
                self._run_dir, {"global_steps": -1, "session_id": 0, "uid": "", **about}
            ):
                tokens = last_response(data)
                start = self._turns.start(tokens, about.get("__num_turns__"))
                tokenizer: Any = self.tokenizer
                answer = tokenizer.decode(tokens[start:], skip_special_tokens=True)
                source, truth = str(about.get("data_source")), about["reward_model"]["ground_truth"]
                found = await self._node.call("score", source, truth, answer, len(tokens))
                return found if found is not None else await self._by_verl(data, about)
        except UngradableError:
            if self._on_ungradable is not OnUngradable.zero_advantage:
                raise
            info = _info() | {UNGRADABLE: 1.0}
            return {"reward_score": 0.0, "reward_extra_info": info}  # for `JudgedTrainer`

    async def _by_verl(self, data: DataProto, about: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found = await self._others.run_single(data)
        except NotImplementedError as error:
            raise DataError(
                f"data_source={about.get('data_source')}: verl has no scorer for it, and the ground "
                "truth is neither an id of coding.problems nor tests; set "
                "reward.custom_reward_function.path"
            ) from error
        except Exception as error:  # of somebody's own function
            traceback.print_exc()
            reason = " ".join(str(error).split())[:300]
            raise UngradableError(
                f"the scorer of data_source={about.get('data_source')} failed: "
                f"{type(error).__name__}: {reason}"
            ) from error
        score = float(found["reward_score"])
        given = found["reward_extra_info"].get("acc", score)
        info = _info() | {"acc": float(given), "pass_fraction": score}
        return {"reward_score": score, "reward_extra_info": info}


class NodeScorer:
    """The Ray actor that scores the programs of a node."""

    def __init__(self, coding: CodingConfig, max_tokens: int, tests_in: TestsIn) -> None:
        self._pool = JudgePool(coding)
        self._tests_in = tests_in
        self._reward = reward_function(coding.reward.kind)
        self._shaping = Shaping.of(coding.reward, style=coding.prompt, max_tokens=max_tokens)
        self._accepted = coding.harbor.integrity

    async def score(
        self, data_source: str, ground_truth: object, completion: str, tokens: int
    ) -> dict[str, Any] | None:
        """Score a completion; None if the row has no tests of programs.

        Raises:
            UngradableError: there is no truthful score.
        """
        problem = self._problem(data_source, ground_truth)
        if problem is None:
            return None
        judge = await self._pool.judge()
        verdict = await judge.hidden.grade(problem, completion)
        if verdict.integrity != Integrity.isolated:
            require(verdict, self._accepted)
        reward = self._reward(problem, verdict)
        if self._shaping.on:
            given = Answer(completion=completion, tokens=tokens)
            reward = shaped(reward, problem, verdict, given, self._shaping)
        return {"reward_score": reward.total, "reward_extra_info": _info(verdict)}

    def _problem(self, data_source: str, ground_truth: object) -> Problem | None:
        if self._pool.knows(ground_truth):
            return self._pool.problem(str(ground_truth))
        try:
            return self._tests_in(ground_truth)
        except DataError:
            if data_source in PROGRAMS:
                raise
            return None


def _info(verdict: Verdict | None = None) -> dict[str, float]:
    """Return a sample's numbers: the same for every row, all 0 without a verdict."""
    error = verdict.error if verdict is not None else None
    return {
        "acc": float(verdict is not None and verdict.passed),
        "pass_fraction": verdict.pass_fraction if verdict else 0.0,
        **{str(group): float(error is not None and error.group is group) for group in ERROR_GROUPS},
        "judge_s": verdict.judge_s if verdict else 0.0,
        "cached": float(verdict is not None and verdict.cached),
        "ran_tests": float(verdict is not None),
        UNGRADABLE: 0.0,
    }
