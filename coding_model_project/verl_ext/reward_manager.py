"""completion → verdict → reward, inside verl's reward workers.

verl starts `reward.num_workers` of these as Ray actors and calls `run_single` for each trajectory as
soon as it is generated, while others still generate.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from coding_model_project.errors import CodingModelError, DataError
from coding_model_project.judge import Judge, open_judge
from coding_model_project.rewards.outcome import REWARDS
from coding_model_project.runs.rollouts import brief
from coding_model_project.runs.ungradable import Ungradable, note, reason_of
from coding_model_project.types import ERROR_GROUPS, Problem, Reward, Verdict

SAMPLE_KEY = "sample"
"""The one key of `reward_extra_info` that is text: JSON for rollouts.jsonl, no metric."""


class CodeRewardManager(RewardManagerBase):
    """Rewards a completion by running it on its problem's hidden tests.

    A row's `reward_model.ground_truth` is a problem's id; the problem, with its tests, comes from
    the files `coding.problems`, read once per worker. What cannot be judged raises: verl then leaves
    that session out of the batch, and its group trains on the samples that were judged. It is noted in
    the run's ungradable.jsonl.
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
        from coding_model_project.data.problems import read_problems

        self._coding: dict[str, Any] = OmegaConf.to_container(config.coding, resolve=True)  # type: ignore[assignment]
        self._problems: dict[str, Problem] = {
            problem.id: problem
            for path in self._coding["problems"]
            for problem in read_problems(path)
        }
        self._reward = REWARDS[self._coding["reward"]["kind"]]
        self._check_public = self._coding["reward"]["check_public"]
        self._stack = AsyncExitStack()
        self._starting: asyncio.Task[Judge] | None = None
        self._run_dir = Path(self._coding["run_dir"])

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Judge one trajectory.

        Returns:
            `reward_score`, and `reward_extra_info`: the same flat keys every time.

        Raises:
            UngradableError: no truthful verdict can be given.
        """
        generated_at = time.time()
        item = cast(Any, data[-1:])[0]  # the last of several outputs
        try:
            return await self._judged(item, generated_at)
        except CodingModelError as error:
            about = item.non_tensor_batch
            row = Ungradable(
                step=int(about["global_steps"]),
                problem=str(about["reward_model"]["ground_truth"]),
                sample=f"{about['uid']}_{about['session_id']}",
                error=type(error).__name__,
                reason=reason_of(error),
                at=time.time(),
            )
            note(self._run_dir, row)
            # verl prints a traceback for each such sample: where it came from is in the message.
            raise error.with_traceback(None) from None

    async def _judged(self, item: Any, generated_at: float) -> dict[str, Any]:
        problem = self._problem(item.non_tensor_batch["reward_model"]["ground_truth"])
        tokens = self._response(item)
        completion = self._decode(tokens, skip_special_tokens=True)
        judge = await self._started_judge()
        verdict = await judge.hidden.grade(problem, completion)
        public = await judge.passes_public(problem, verdict) if self._check_public else None
        reward = self._reward(problem, verdict)
        info = sample_info(verdict, reward, public, generated_at, time.time())
        about = {"problem": problem.id, "tokens": len(tokens), "parts": dict(reward.parts)}
        about["verdict"] = brief(verdict, problem.hidden_tests, public_passed=public)
        return {
            "reward_score": reward.total,
            "reward_extra_info": info | {SAMPLE_KEY: json.dumps(about)},
        }

    def _problem(self, problem_id: str) -> Problem:
        if problem_id not in self._problems:
            raise DataError(
                f"{problem_id}: a row of data.* names it, no file of coding.problems has it"
            )
        return self._problems[problem_id]

    def _response(self, item: Any) -> Any:
        """The generated token ids, without padding."""
        responses = item.batch["responses"]
        n_valid = int(item.batch["attention_mask"][-responses.shape[-1] :].sum())
        return responses[:n_valid]

    async def _started_judge(self) -> Judge:
        """The judge; all who wait for a start that fails get its error, and the next tries anew."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(
                self._stack.enter_async_context(open_judge(self._coding))
            )
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except CodingModelError:
            if self._starting is starting:
                self._starting = None
            raise


def sample_info(
    verdict: Verdict,
    reward: Reward,
    public_passed: bool | None,
    generated_at: float,
    graded_at: float,
) -> dict[str, float]:
    """What travels with a sample, as flat numbers; `trainer` makes each step's metrics of it.

    Times are seconds since the epoch, so that they compare across processes of a node.
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
