"""Agent-loop worker that does for a sample what somebody reads, and counts tokens that miss the batch.

A step of small samples takes as long as its messages. For each sample verl's worker merges a loop's
arguments into a configuration (`hydra.utils.instantiate`, 4 ms), asks the load balancer for a server and
tells it when that is free, has vLLM decode each token, sends the reward worker a batch of tensors, and
sends the queue's processes four messages (6 ms of CPU time).
verl's key `rollout.agent.agent_loop_manager_class` selects this worker.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import ray
import transfer_queue as tq
from hydra.utils import get_class, instantiate
from verl.experimental.agent_loop import agent_loop as verl_loops
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1 import agent_loop_tq as verl_queued
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.rollout_trace import rollout_trace_attr
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.llm_server import LLMServerClient

from coding_model_project.verl_ext.rewards.judging import EPISODES, ROW_KEYS
from coding_model_project.verl_ext.trainers.batches import group_of

_queued: Any = verl_queued
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


class _ByPrompt:
    """The queue's functions as verl's module calls them, which put a prompt's samples together.

    The trainer takes a prompt's samples only once verl has put its final status, so until then they wait
    here.
    """

    def __init__(self) -> None:
        self._waiting: defaultdict[str, list[tuple[str, dict[str, Any], Any]]] = defaultdict(list)

    async def async_kv_batch_put(
        self, *, keys: Sequence[str], fields: Sequence[dict[str, Any]], tags: Any, partition_id: str
    ) -> None:
        """Keep the samples of one session."""
        self._waiting[group_of(keys[0])] += zip(keys, fields, tags, strict=True)

    async def async_kv_put(self, *, key: str, partition_id: str, tag: Any) -> None:
        """Put a prompt's samples, and then its status."""
        waiting = self._waiting.pop(key, [])
        by_fields = sorted(waiting, key=lambda sample: sorted(sample[1]))
        for _, alike in groupby(by_fields, key=lambda sample: sorted(sample[1])):
            keys, fields, tags = map(list, zip(*alike, strict=True))
            await tq.async_kv_batch_put(
                keys=keys,
                fields=list_of_dict_to_tensordict(fields),
                tags=tags,
                partition_id=partition_id,
            )
        await tq.async_kv_put(key=key, partition_id=partition_id, tag=tag)


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
        # Of these two names in its module, verl uses only what `_ByPrompt` has.
        _queued.tq, _queued.list_of_dict_to_tensordict = _ByPrompt(), list
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
