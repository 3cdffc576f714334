"""Worker extension that verl's weight sync calls in vLLM's engine process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)

from coding_model_project.verl_ext.cluster import vllm_queue  # noqa: F401 - for a main_ppo without the fork server
from coding_model_project.verl_ext.cluster.worker_setup import own_place


class CPUWorkerExtension(vLLMColocateWorkerExtension):
    """An extension that loads new weights with vLLM's own `reload_weights`.

    On a CPU vLLM repacks every linear weight for oneDNN and drops the original parameter. verl's in-place
    load would find parameters without a loader.
    """

    model_runner: Any  # of the vLLM worker that this class is mixed into

    def _get_zmq_handle(self) -> str:
        return own_place(super()._get_zmq_handle())

    def update_weights_from_ipc(
        self,
        peft_config: dict[str, Any] | None = None,
        base_sync_done: bool = False,
        use_shm: bool = True,
    ) -> None:
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import (
            BucketedWeightReceiver,
        )

        if peft_config and base_sync_done:
            raise ValueError("LoRA adapters cannot be synced to vLLM on a CPU; set lora_rank=0")
        weights: list[tuple[str, torch.Tensor]] = []
        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        # Copies, since the receiver reuses its buffer.
        receiver.receive_weights(
            lambda bucket, is_last: weights.extend((name, w.clone()) for name, w in bucket)
        )
        self.load(weights)

    def load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace the model's weights by those of a Hugging Face model of the same shape."""
        heads = _tied_heads(self.model_runner.get_model())
        self.model_runner.reload_weights(weights_iterator=iter(weights))
        for head, embedding in heads:
            head.weight = embedding.weight
            head.quant_method.process_weights_after_loading(head)


def _tied_heads(model: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Return each output head that shares the weight of an input embedding, with that embedding.

    `reload_weights` only reloads the modules that the checkpoint names. A tied head has no name of its
    own, so its copy in oneDNN's layout would keep the previous weights.
    """
    parts: list[Any] = [one for one in model.modules() if isinstance(one, VocabParallelEmbedding)]
    heads: list[Any] = [one for one in parts if isinstance(one, ParallelLMHead)]
    return [
        (head, embedding)
        for head in heads
        for embedding in parts
        if embedding not in heads and head.weight.data_ptr() == embedding.weight.data_ptr()
    ]
