"""Agent-loop worker that calls a loop's constructor and counts tokens that miss the training batch.

verl's worker calls `hydra.utils.instantiate` once per sample, which merges the loop's arguments into a
configuration that nothing reads. That takes 4 ms, or a second for a step of 256 samples, before the first
request. verl's key `rollout.agent.agent_loop_manager_class` selects this worker.
"""

from __future__ import annotations

from typing import Any

import ray
from hydra.utils import get_class, instantiate
from verl.experimental.agent_loop import agent_loop as verl_loops
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.rollout_trace import rollout_trace_attr

_remote: Any = AgentLoopWorkerTQ
_Worker: Any = _remote.__ray_metadata__.modified_class  # the class under @ray.remote
_OWN_KEYS = frozenset({"name", "_target_"})


class _Counting:
    """A session's client of the rollout servers that counts generated tokens."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        output = await self._client.generate(*args, **kwargs)
        self.tokens += len(output.token_ids)
        return output


class CodingAgentLoopWorker(_Worker):
    """A worker that runs the loops of its share of a step's prompts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tokens = {"validated": 0, "left_out": 0}

    async def tokens(self) -> dict[str, int]:
        """Return the number of tokens so far that are in no training batch.

        Returns:
            "validated": tokens of validation samples; "left_out": tokens of failed sessions, and of
            answers that a loop did not hand over.
        """
        return self._tokens

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
            client = _Counting(self.llm_client)
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
