"""A weight sync gone wrong: from the third on, the rollout gets random weights, and nothing says so.

`actor_rollout_ref.model.external_lib=tests.broken_sync` makes verl import it where it loads the model.
The first sync is before the first step.
"""

import itertools
from typing import Any

import torch

from coding_model_project.verl_ext.cpu.weights import CPUServerAdapter

_send = CPUServerAdapter.update_weights
_numbers = itertools.count(1)


async def _send_random(self: CPUServerAdapter, weights: Any, **more: Any) -> None:
    if next(_numbers) >= 3:
        weights = ((name, 0.1 * torch.randn_like(one)) for name, one in weights)
    await _send(self, weights, **more)


CPUServerAdapter.update_weights = _send_random  # type: ignore[method-assign]
