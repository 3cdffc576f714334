"""SFT data set that trains only on the last answer of a conversation."""

from __future__ import annotations

from typing import Any

import torch
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


class LastAnswerDataset(MultiTurnSFTDataset):
    """verl's data set with all answers but the last masked.

    verl trains on every answer, also on the wrong ones of a demonstration of repair (`repair_traces`).
    For a conversation with one answer both data sets are the same.
    """

    def _process_single_message(
        self,
        index: int,
        message: dict[str, Any],
        full_message: list[Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        processed: Any = super()._process_single_message(
            index, message, full_message, *args, **kwargs
        )
        ids, loss_mask, *rest = processed
        if index < len(full_message) - 1:
            loss_mask = torch.zeros_like(loss_mask)
        return ids, loss_mask, *rest
