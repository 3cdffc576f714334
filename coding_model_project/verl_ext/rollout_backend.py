"""Evaluation back end on verl's standalone rollout, the servers that training generates with.

verl.workers.rollout.llm_server.LLMServerManager without a worker group launches its own replicas,
balances requests over them and loads the model's weights.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from omegaconf import DictConfig

from coding_model_project.errors import ConfigError, GenerationError, PromptError
from coding_model_project.evaluation.backends.generation import (
    Completion,
    Messages,
    Sampling,
    count_reasoning,
    reasoning_marks,
    refuse_unknown_variables,
)
from coding_model_project.evaluation.backends.vllm_backend import CPU_CACHE_BYTES
from coding_model_project.extras import without_collections
from coding_model_project.launch.device import count_gpus, environment_of
from coding_model_project.launch.verl_keys.tree import composed, config_dir
from coding_model_project.verl_ext.cluster import forkserver
from coding_model_project.verl_ext.cluster.membership import missing_replicas, wait_while
from coding_model_project.verl_ext.cluster.nodes import alive_nodes, cause_of
from coding_model_project.verl_ext.cluster.session import in_session, start_ray
from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin

_ON_CPU = (
    "actor_rollout_ref.rollout.enforce_eager=true",
    "actor_rollout_ref.rollout.free_cache_engine=false",
    "+actor_rollout_ref.rollout.enable_sleep_mode=false",
    # vLLM's CPU build rejects seeds with chunked prefill.
    "actor_rollout_ref.rollout.enable_chunked_prefill=false",
    f"+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={CPU_CACHE_BYTES}",
)
_OWN_RAY_ON_CPU = (
    "+ray_kwargs.ray_init.num_gpus=1",  # logical: the one rollout rank
    "ray_kwargs.ray_init.num_cpus=16",  # logical: each of verl's small actors reserves one
    "+ray_kwargs.ray_init.include_dashboard=false",
    "+ray_kwargs.ray_init.object_store_memory=300000000",
)
"""Sizes of a Ray that the back end starts; a cluster has its own."""
_BATCHED_TOKENS = 8192
"""Prompt tokens per engine step on a CPU."""


class VerlBackend:
    """A `generation.Backend` on verl's rollout.

    Args:
        config: configuration whose `coding.evaluation` names the model. Each GPU gets a replica, on this
            host or on the cluster that `coding.evaluation.cluster` names.
    """

    repeatable = True

    def __init__(self, config: DictConfig) -> None:
        self.concurrency: int = config.coding.evaluation.concurrency or 256
        self._model: str = config.coding.evaluation.model
        self._on_cluster = config.coding.evaluation.cluster is not None
        self._overrides = _overrides(config, self.concurrency)
        self._numbers = itertools.count()
        self._client: Any = None
        self._tokenizer: Any = None
        self._max_len = 0
        self._marks: tuple[int | None, int | None] = (None, None)
        self._own_ray = ExitStack()
        """Ends the Ray that this back end started; empty in another caller's."""

    @property
    def identity(self) -> str:
        from importlib import metadata

        return f"verl {metadata.version('verl')} standalone rollout, vLLM"

    async def __aenter__(self) -> Self:
        owns_ray = not in_session()
        python = None
        if owns_ray and count_gpus() == 0:  # first: it imports vLLM while this process imports verl
            python = self._own_ray.enter_context(forkserver.running())
        try:
            await self._start(owns_ray, python)
        except BaseException:
            self._own_ray.close()
            raise
        return self

    async def _start(self, owns_ray: bool, python: str | None) -> None:
        """Start the rollout, in a Ray of its own if `owns_ray`, whose workers `python` runs."""
        check_cpu_plugin()
        with without_collections():
            import ray
            from ray.exceptions import RayError
            from verl.utils import hf_tokenizer
            from verl.workers.rollout.llm_server import LLMServerManager

        tokenizer: Any = hf_tokenizer(self._model)
        if tokenizer.chat_template is None:
            raise ConfigError(f"{self._model} has no chat template; save one with its tokenizer")
        self._tokenizer = tokenizer
        self._marks = reasoning_marks(tokenizer)
        nodes, gpus = self._places()
        if self._on_cluster and (
            lack := await asyncio.to_thread(
                wait_while, lambda free: missing_replicas(nodes * gpus, free)
            )
        ):
            raise GenerationError(f"coding.evaluation.mode=verl: {lack}")
        rollout = "actor_rollout_ref.rollout"
        sizes = [f"{rollout}.nnodes={nodes}", f"{rollout}.n_gpus_per_node={gpus}"]
        sizes += () if self._on_cluster or count_gpus() else _OWN_RAY_ON_CPU
        config = composed(config_dir(), "ppo_trainer", [*self._overrides, *sizes])
        if owns_ray:
            start_ray(config, python)
            self._own_ray.callback(ray.shutdown)
        try:
            manager = await LLMServerManager.create(config=config)
        except (RayError, ValueError, RuntimeError) as error:
            raise GenerationError(f"verl's rollout does not start: {cause_of(error)}") from error
        self._max_len = config.actor_rollout_ref.rollout.max_model_len
        self._client = manager.get_client()

    async def __aexit__(self, *_: object) -> None:
        self._client = None
        self._own_ray.close()

    def _places(self) -> tuple[int, int]:
        """Return the numbers of nodes that generate, and of their GPUs: the cluster's, or this one's."""
        if self._on_cluster:
            sizes = [int(node.gpus) for node in alive_nodes() if int(node.gpus)]
            if not sizes:
                raise GenerationError(
                    "coding.evaluation.mode=verl: the Ray cluster has no GPU; start its nodes with "
                    "`ray start --num-gpus=N` (N=1 on a CPU, for one replica)"
                )
            return len(sizes), min(sizes)
        return 1, max(1, count_gpus())

    async def check(self, sampling: Sampling) -> Sequence[str]:
        """See `generation.Backend`. `Settings.of` rejects `stop`; vLLM supports the other options."""
        template = self._tokenizer.get_chat_template()
        refuse_unknown_variables(template, self._model, sampling.chat_template_kwargs)
        return ()

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """See `generation.Backend`."""
        from ray.exceptions import RayError

        prompt_ids = self._tokenizer.apply_chat_template(
            messages,
            tokenize=True,
            add_generation_prompt=True,
            return_dict=False,
            **sampling.chat_template_kwargs,
        )
        room = self._max_len - len(prompt_ids)
        if room < 1:
            raise PromptError(
                f"the prompt has {len(prompt_ids)} tokens and the model takes {self._max_len}"
            )
        options = sampling.optional()
        options.pop("chat_template_kwargs", None)  # already in the prompt
        params = {
            **options,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": seed,
        }
        try:
            output = await self._client.generate(
                f"evaluation-{next(self._numbers)}", prompt_ids=prompt_ids, sampling_params=params
            )
        except RayError as error:
            raise GenerationError(f"verl's rollout failed: {cause_of(error)}") from error
        if output.stop_reason != "completed":  # aborted: never an empty completion
            raise GenerationError(f"verl's rollout {output.stop_reason} a request")
        ids = output.token_ids
        opens, closes = self._marks
        ended = bool(ids) and ids[-1] == self._tokenizer.eos_token_id
        return Completion(
            text=self._tokenizer.decode(ids, skip_special_tokens=True),
            n_tokens=len(ids),
            # verl does not report why an answer ended, so infer it from the last token and the room.
            truncated=not ended and len(ids) >= min(sampling.max_tokens, room),
            n_reasoning_tokens=count_reasoning(prompt_ids, ids, opens=opens, closes=closes),
        )


def rollout_environment() -> dict[str, Any]:
    """Return the runtime environment that verl's rollout needs on the nodes of a cluster.

    Workers have their node's environment, without the variables that this process sets for verl and vLLM.
    """
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    environment: dict[str, Any] = dict(get_ppo_ray_runtime_env(None))
    names = environment_of("cpu" if count_gpus() == 0 else "cuda")
    own = {name: os.environ[name] for name in names if name in os.environ}
    environment["env_vars"] = {**environment.get("env_vars", {}), **own}
    return environment


def _overrides(config: DictConfig, concurrency: int) -> list[str]:
    """Return the overrides of verl's `ppo_trainer` tree that configure a rollout alone."""
    evaluation = config.coding.evaluation
    rollout = {
        "name": "vllm",
        "tensor_model_parallel_size": 1,
        "load_format": "auto",
        "seed": config.coding.seed,
        "dtype": "bfloat16" if evaluation.dtype == "auto" else evaluation.dtype,
        "max_model_len": evaluation.max_model_len or _context(evaluation.model),
        "max_num_seqs": concurrency,
    }
    on_cpu = count_gpus() == 0
    if on_cpu:
        rollout["max_num_batched_tokens"] = max(_BATCHED_TOKENS, rollout["max_model_len"])
    return [
        f"actor_rollout_ref.model.path={evaluation.model}",
        *(f"actor_rollout_ref.rollout.{key}={value}" for key, value in rollout.items()),
        *(_ON_CPU if on_cpu else ()),
    ]


def _context(model: str) -> int:
    """Return the model's context length in tokens."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model).max_position_embeddings
