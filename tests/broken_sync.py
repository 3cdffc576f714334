"""A weight sync gone wrong: the rollout gets random weights, and nothing says so.

`actor_rollout_ref.model.external_lib=tests.broken_sync` makes verl import it where it loads the model.
"""

from __future__ import annotations

from typing import Any

import torch

from coding_model_project.verl_ext.cpu.weights import CPUServerAdapter

_send = CPUServerAdapter.update_weights


async def _send_random(self: CPUServerAdapter, weights: Any, **more: Any) -> None:
    await _send(self, ((name, 0.1 * torch.randn_like(one)) for name, one in weights), **more)


CPUServerAdapter.update_weights = _send_random  # type: ignore[method-assign]
