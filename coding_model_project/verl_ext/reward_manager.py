"""completion → verdict → reward, inside verl's reward workers.

verl starts `reward.num_workers` of these as Ray actors and calls `run_single` for each trajectory as
soon as it is generated, while others still generate.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from coding_model_project.graders.base import Grader
from coding_model_project.judge import open_grader
from coding_model_project.rewards.outcome import REWARDS
from coding_model_project.types import ERROR_GROUPS, Problem, Reward, Verdict


class CodeRewardManager(RewardManagerBase):
    """Rewards a completion by running it on its problem's hidden tests.

    A row's `reward_model.ground_truth` is a problem's id; the problem, with its tests, comes from
    the files `coding.problems`, read once per worker. What cannot be judged raises: verl then leaves
    that session out of the batch, and its group trains on the samples that were judged.
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
        self._stack = AsyncExitStack()
        self._grader: Grader | None = None
        self._starting = asyncio.Lock()

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Judge one trajectory.

        Returns:
            `reward_score`, and `reward_extra_info` with the same flat numeric keys every time.

        Raises:
            UngradableError: no truthful verdict can be given.
        """
        generated_at = time.time()
        item = cast(Any, data[-1:])[0]  # the last of several outputs
        problem = self._problems[item.non_tensor_batch["reward_model"]["ground_truth"]]
        verdict = await (await self._started_grader()).grade(problem, self._completion(item))
        reward = self._reward(problem, verdict)
        return {
            "reward_score": reward.total,
            "reward_extra_info": sample_info(verdict, reward, generated_at, time.time()),
        }

    def _completion(self, item: Any) -> str:
        responses = item.batch["responses"]
        n_valid = int(item.batch["attention_mask"][-responses.shape[-1] :].sum())
        return self._decode(responses[:n_valid], skip_special_tokens=True)

    async def _started_grader(self) -> Grader:
        async with self._starting:
            if self._grader is None:
                self._grader = await self._stack.enter_async_context(open_grader(self._coding))
        return self._grader


def sample_info(
    verdict: Verdict, reward: Reward, generated_at: float, graded_at: float
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
        "judge_s": verdict.judge_s,
        "cached": float(verdict.cached),
        "generated_at": generated_at,
        "graded_at": graded_at,
    }
