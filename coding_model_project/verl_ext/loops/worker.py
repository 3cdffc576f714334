"""verl's agent-loop worker, which makes a sample's loop without composing a configuration for it.

verl's calls `hydra.utils.instantiate` once per sample, which merges the loop's arguments into a
configuration that nothing reads: 4 ms, a second for a step of 256 samples, before the first requests are
sent. The loop is made by its constructor here. `rollout.agent.agent_loop_manager_class` is verl's own key
for this. The worker also counts the tokens that do not end up in a training batch.
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
    """A session's client of the rollout servers, which counts the tokens that it gets."""

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
    """Runs the loops of a share of a step's prompts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tokens = {"validated": 0, "left_out": 0}

    async def tokens(self) -> dict[str, int]:
        """Return the tokens so far that were not generated to be trained on, or got lost on the way.

        Returns:
            "validated": of validation samples; "left_out": of sessions that failed, and of answers that
            are not part of what a loop handed over.
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
        return instantiate(registered, **arguments)  # a user's loop with arguments of its own


class CodingAgentLoopManager(AgentLoopManagerTQ):
    """Gives the rows of a step to `CodingAgentLoopWorker`s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(CodingAgentLoopWorker)
