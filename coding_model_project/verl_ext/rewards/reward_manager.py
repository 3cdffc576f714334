"""Reward manager for verl's reward workers: completion → verdict → reward.

verl starts `reward.num_workers` Ray actors with it. Each trajectory is judged once it is generated, while
others are still being generated: `loops.worker` sends it to `judge`, verl's own workers to `run_single`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from coding_model_project.configs.schema import coding_of
from coding_model_project.episodes.bash import Ending
from coding_model_project.episodes.repair import RepairReward
from coding_model_project.grading.brief import brief, verdict_of
from coding_model_project.grading.rewards import discounted, reward_function
from coding_model_project.grading.shaping import Answer, Shaping, shaped
from coding_model_project.harbor.harbor_config import AgentEnding, Integrity, require
from coding_model_project.types import ERROR_GROUPS, Problem, Reward, Verdict
from coding_model_project.verl_ext.rewards.judging import (
    AGENT,
    ATTEMPTS,
    EPISODE,
    JudgePool,
    ModelsTurn,
    last_response,
    leaving_out,
)

SAMPLE_KEY = "sample"
"""The only text in `reward_extra_info`: JSON for rollouts.jsonl, not a metric."""


class CodeRewardManager(RewardManagerBase):
    """A reward manager that runs completions on their problems' hidden tests.

    Each attempt of an episode with repairs is a completion; observations are not.
    `coding.repair.reward` selects the attempts that are rewarded.

    A row's `reward_model.ground_truth` is a problem's id. The problem and its tests come from the files
    of `coding.problems`, which each worker reads by id. A sample that cannot be judged raises. verl then
    drops its session, and the group trains on the judged samples. The run's ungradable.jsonl notes it.
    """

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
        self._decode = tokenizer.decode
        self._turns = ModelsTurn(tokenizer)
        coding = coding_of(config)
        self._pool = JudgePool(coding)
        self._reward = reward_function(coding.reward.kind)
        self._shaping = Shaping.of(
            coding.reward, style=coding.prompt, max_tokens=config.data.max_response_length
        )
        self._shapes = self._shaping.on
        self._check_public = coding.reward.check_public
        self._accepted = coding.harbor.integrity
        self._rewards_best = coding.repair.reward is RepairReward.best
        self._discount = coding.repair.discount
        self._run_dir = Path(coding.run_dir)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Judge a trajectory in verl's form; see `judge`."""
        about = cast(Any, data[-1:])[0].non_tensor_batch  # of the last of several outputs
        extra, turns = about.get("tool_extra_fields", {}), about.get("__num_turns__", 2)
        return await self.judge(about, last_response(data), turns, extra)

    async def judge(
        self, row: Mapping[str, Any], tokens: list[int], turns: int, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Judge one trajectory.

        Args:
            row: the fields `ROW_KEYS` of its row.
            tokens: ids of its response, with observations and without padding; of an agent's work, those
                of its longest conversation.
            turns: verl's number of messages; 2 are a prompt and an answer.
            extra: what an agent loop tells of its episode, with at most one of the keys `EPISODES`.

        Returns:
            `reward_score`, and `reward_extra_info` with the same flat keys for every sample.

        Raises:
            UngradableError: there is no truthful verdict.
        """
        generated_at = time.time()
        with leaving_out(self._run_dir, row):
            problem = self._pool.problem(row["reward_model"]["ground_truth"])
            if AGENT in extra:
                return self._of_agent(problem, extra[AGENT], tokens, generated_at)
            if EPISODE in extra:
                return self._of_bash(problem, extra[EPISODE], tokens, generated_at)
            attempts = extra.get(ATTEMPTS, [])
            start = 0 if attempts else self._turns.start(tokens, turns)
            return await self._of_attempts(problem, attempts, start, tokens, generated_at)

    async def _of_attempts(
        self,
        problem: Problem,
        attempts: list[dict[str, Any]],
        start: int,
        tokens: list[int],
        generated_at: float,
    ) -> dict[str, Any]:
        """Judge a response with several attempts, or one answer from `start` on."""
        spans = [(attempt["start"], attempt["end"]) for attempt in attempts]
        spans = spans or [(start, len(tokens))]
        answers = [self._decode(tokens[a:b], skip_special_tokens=True) for a, b in spans]
        judge = await self._pool.judge()
        # The hidden tests always judge the last attempt, which a run reports.
        graded = range(0 if self._rewards_best else len(answers) - 1, len(answers))
        verdicts = await asyncio.gather(
            *(judge.hidden.grade(problem, answers[number]) for number in graded)
        )
        for verdict in verdicts:
            if verdict.integrity != Integrity.isolated:
                require(verdict, self._accepted)
        rewards = [
            self._worth(problem, verdict, answers[number], len(tokens), number)
            for number, verdict in zip(graded, verdicts, strict=True)
        ]
        reward = max(reversed(rewards), key=lambda one: one.total)  # the last of equals
        verdict = verdicts[-1]
        public = await judge.passes_public(problem, verdict) if self._check_public else None
        info = sample_info(verdict, reward, public, generated_at, time.time())
        if not attempts:
            return _found(problem, verdict, reward, info, spans, public=public)
        shown = [a | {"completion": text} for a, text in zip(attempts, answers, strict=True)]
        info |= episode_info(verdict, attempts)
        return _found(problem, verdict, reward, info, spans, public=public, attempts=shown)

    def _of_bash(
        self, problem: Problem, episode: Mapping[str, Any], tokens: list[int], generated_at: float
    ) -> dict[str, Any]:
        """Reward an episode of the bash agent by its recorded verdict."""
        replies = episode["replies"]
        spans = [(reply["start"], reply["end"]) for reply in replies]
        last = self._decode(tokens[slice(*spans[-1])], skip_special_tokens=True) if spans else ""
        verdict = verdict_of(episode["verdict"])
        reward = self._worth(problem, verdict, last, len(tokens), 0)
        info = sample_info(verdict, reward, None, generated_at, time.time())
        info |= bash_info(episode["ending"], replies)
        shown = {"ending": episode["ending"], "replies": replies}
        return _found(problem, verdict, reward, info, spans, **shown)

    def _of_agent(
        self, problem: Problem, work: Mapping[str, Any], tokens: list[int], generated_at: float
    ) -> dict[str, Any]:
        """Reward an agent's work by its recorded verdict."""
        spans = [(reply["start"], reply["end"]) for reply in work["replies"]]
        last = self._decode(tokens[slice(*spans[-1])], skip_special_tokens=True)
        verdict = verdict_of(work["verdict"])
        reward = self._worth(problem, verdict, last, work["generated_tokens"], 0)
        info = sample_info(verdict, reward, None, generated_at, time.time()) | agent_info(work)
        shown = {name: value for name, value in work.items() if name != "verdict"}
        return _found(problem, verdict, reward, info, spans, agent=shown)

    def _worth(
        self, problem: Problem, verdict: Verdict, answer: str, n_tokens: int, repairs: int
    ) -> Reward:
        """Return the reward of an attempt after `repairs` repairs."""
        reward = self._reward(problem, verdict)
        if self._shapes:
            given = Answer(completion=answer, tokens=n_tokens)
            reward = shaped(reward, problem, verdict, given, self._shaping)
        return discounted(reward, self._discount**repairs) if self._rewards_best else reward


def _found(
    problem: Problem,
    verdict: Verdict,
    reward: Reward,
    info: Mapping[str, float],
    spans: Sequence[tuple[int, int]],
    *,
    public: bool | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Return verl's result of `run_single`, with the sample for rollouts.jsonl.

    Args:
        spans: spans of the model's own tokens.
        extra: data of an episode.
    """
    sample = {
        "problem": problem.id,
        "tokens": sum(b - a for a, b in spans),
        "parts": dict(reward.parts),
        "verdict": brief(verdict, problem.hidden_tests, public_passed=public),
        "extra": extra,
    }
    return {
        "reward_score": reward.total,
        "reward_extra_info": {**info, SAMPLE_KEY: json.dumps(sample)},
    }


def bash_info(ending: str, replies: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of a bash agent's episode for `samples.work_metrics`."""
    commands = [reply for reply in replies if reply["command"] is not None]
    return {
        "bash_commands": float(len(commands)),
        "bash_failed_commands": float(sum(reply["exit_code"] != 0 for reply in commands)),
        "bash_command_s": sum(reply["command_s"] for reply in commands),
        **{f"bash_ended_{name}": float(ending == name) for name in Ending},
    }


def agent_info(work: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of an agent's work for `samples.work_metrics`."""
    counts = ("turns", "commands", "conversations", "agent_s", "untrained_tokens")
    return {
        **{f"agent_{name.removeprefix('agent_')}": float(work[name]) for name in counts},
        **{f"agent_ended_{name}": float(work["ending"] == name) for name in AgentEnding},
    }


def episode_info(verdict: Verdict, attempts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of an episode's repairs for `samples.repair_metrics`.

    Args:
        verdict: verdict of the last attempt.
    """
    repairs = len(attempts) - 1
    return {
        "repairs": float(repairs),
        "repaired": float(verdict.passed and repairs > 0),
        "public_judge_s": sum(attempt["judge_s"] for attempt in attempts),
    }


def sample_info(
    verdict: Verdict,
    reward: Reward,
    public_passed: bool | None,
    generated_at: float,
    graded_at: float,
) -> dict[str, float]:
    """Return a sample's figures, from which `samples` computes each step's metrics.

    Times are seconds since the epoch, so that processes of a node can compare them.
    """
    error = verdict.error
    return {
        "acc": float(verdict.passed),
        "pass_fraction": verdict.pass_fraction,
        **{f"reward_{part}": value for part, value in reward.parts.items()},
        **{str(group): float(error is not None and error.group is group) for group in ERROR_GROUPS},
        "public_pass_hidden_fail": float(not verdict.passed and public_passed is True),
        "judge_s": verdict.judge_s,
        "cached": float(verdict.cached),
        "generated_at": generated_at,
        "graded_at": graded_at,
    }
