"""Agent-loop worker that does for a sample what somebody reads, and counts tokens that miss the batch.

A step of small samples takes as long as its messages. For each sample verl's worker merges a loop's
arguments into a configuration (`hydra.utils.instantiate`, 4 ms), asks the load balancer for a server and
tells it when that is free, has vLLM decode each token, and sends the reward worker a batch of tensors.
verl's key `rollout.agent.agent_loop_manager_class` selects this worker.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from hydra.utils import get_class, instantiate
from verl.experimental.agent_loop import agent_loop as verl_loops
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.rollout_trace import rollout_trace_attr
from verl.workers.rollout.llm_server import LLMServerClient

from coding_model_project.verl_ext.rewards.judging import EPISODES, ROW_KEYS

_remote: Any = AgentLoopWorkerTQ
_Worker: Any = _remote.__ray_metadata__.modified_class  # the class under @ray.remote
_OUR_MANAGER = "pkg://coding_model_project.verl_ext.rewards.reward_manager"
_OWN_KEYS = frozenset({"name", "_target_"})


class _Counting:
    """A session's client of the rollout servers that counts generated tokens, and asks vLLM for no text.

    Args:
        ids_only: whether the servers have vLLM's option for that; stop strings need the text.
    """

    def __init__(self, client: Any, *, ids_only: bool) -> None:
        self._client, self._ids_only = client, ids_only
        self.tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(self, *args: Any, sampling_params: Mapping[str, Any], **kwargs: Any) -> Any:
        asked = dict(sampling_params)
        if self._ids_only and not asked.get("stop"):
            asked.setdefault("detokenize", False)
        output = await self._client.generate(*args, sampling_params=asked, **kwargs)
        self.tokens += len(output.token_ids)
        return output


async def _keep_the_only_server(client: Any) -> None:
    """Have a client ask verl's load balancer only once, if there is one server and verl adds none.

    A user's own balancer is asked each time: it may limit, count, or choose by the prompt.
    """
    if type(client) is not LLMServerClient:
        return
    if client.config.actor_rollout_ref.rollout.router_config_path:
        return
    balancer: Any = client._load_balancer
    if len(await balancer.get_all_servers.remote()) == 1:
        found = await client._acquire_server("")

        async def acquire(*_: Any, **__: Any) -> Any:
            return found

        own: Any = client
        own._acquire_server, own._release_server = acquire, lambda *_, **__: None


class CodingAgentLoopWorker(_Worker):
    """A worker that runs the loops of its share of a step's prompts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tokens = {"validated": 0, "left_out": 0}
        self._ids_only = self.config.actor_rollout_ref.rollout.name == "vllm"
        reward = self.config.reward
        # `verl_reward`, for other people's recipes, has a manager of the same name.
        self._judged_by_us = (
            reward.reward_manager.module.path == _OUR_MANAGER and not reward.reward_model.enable
        )
        self._looked_for_servers = False

    async def tokens(self) -> dict[str, int]:
        """Return the number of tokens so far that are in no training batch.

        Returns:
            "validated": tokens of validation samples; "left_out": tokens of failed sessions, and of
            answers that a loop did not hand over.
        """
        return self._tokens

    async def generate_sequences(self, batch: Any) -> None:
        if not self._looked_for_servers:
            self._looked_for_servers = True
            await _keep_the_only_server(self.llm_client)
        await super().generate_sequences(batch)

    async def _compute_score(self, outputs: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        last = outputs[-1]
        if last.reward_score is not None or not self._judged_by_us:
            await super()._compute_score(outputs, kwargs)
            return
        began = time.perf_counter()
        row = {key: kwargs[key] for key in ROW_KEYS}
        extra = {key: last.extra_fields[key] for key in EPISODES if key in last.extra_fields}
        judge = random.choice(self.reward_loop_worker_handles).judge
        found = await judge.remote(row, last.response_ids, last.num_turns, extra)
        last.reward_score = found["reward_score"]
        last.extra_fields["reward_extra_info"] = found["reward_extra_info"]
        last.metrics.compute_score = time.perf_counter() - began

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **row: Any,
    ) -> Any:
        keys = ("step", "sample_index", "rollout_n", "validate")
        with rollout_trace_attr(
            **{key: trajectory[key] for key in keys}, name="agent_loop", trace=trace
        ):
            client = _Counting(self.llm_client, ids_only=self._ids_only)
            handed_over = 0
            try:
                output = await self._make_loop(agent_name, client).run(sampling_params, **row)
                outputs = output if isinstance(output, list) else [output]
                await self._agent_loop_postprocess(output, trajectory["validate"], **row)
                handed_over = sum(sum(one.response_mask) for one in outputs)
            finally:
                kept = 0 if trajectory["validate"] else handed_over
                self._tokens["validated"] += handed_over - kept
                self._tokens["left_out"] += client.tokens - handed_over

    def _make_loop(self, name: str, client: Any) -> Any:
        registered = verl_loops._agent_loop_registry[name]
        arguments = {
            "trainer_config": verl_loops.DictConfigWrap(config=self.config),
            "server_manager": client,
            "tokenizer": self.tokenizer,
            "processor": self.processor,
            "hf_model_type": self.hf_model_type,
            "dataset_cls": self.dataset_cls,
            "data_config": verl_loops.DictConfigWrap(self.config.data),
            "tools": verl_loops.ToolListWrap(self.tools),
        }
        if set(registered) <= _OWN_KEYS:
            return get_class(registered["_target_"])(**arguments)
        return instantiate(registered, **arguments)  # a user's loop with its own arguments


class CodingAgentLoopManager(AgentLoopManagerTQ):
    """A manager that spreads the rows of a step over `CodingAgentLoopWorker`s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(CodingAgentLoopWorker)
