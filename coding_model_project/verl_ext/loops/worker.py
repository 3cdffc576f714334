"""verl's agent-loop worker, which makes a sample's loop without composing a configuration for it.

verl's calls `hydra.utils.instantiate` once per sample, which merges the loop's arguments into a
configuration that nothing reads: 4 ms, a second for a step of 256 samples, before the first requests are
sent. The loop is made by its constructor here. `rollout.agent.agent_loop_manager_class` is verl's own key
for this.
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


class CodingAgentLoopWorker(_Worker):
    """Runs the loops of a share of a step's prompts."""

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
            loop = self._make_loop(agent_name)
            output = await loop.run(sampling_params, **row)
            return await self._agent_loop_postprocess(output, trajectory["validate"], **row)

    def _make_loop(self, name: str) -> Any:
        registered = verl_loops._agent_loop_registry[name]
        arguments = {
            "trainer_config": verl_loops.DictConfigWrap(config=self.config),
            "server_manager": self.llm_client,
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
