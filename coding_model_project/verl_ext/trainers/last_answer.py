"""verl's SFT data set, but of a conversation only the last answer is trained on."""

from __future__ import annotations

from typing import Any

import torch
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


class LastAnswerDataset(MultiTurnSFTDataset):
    """verl trains on every answer: of a demonstration of repair (`repair_traces`) on the wrong one.

    The same as verl's for a conversation with one answer.
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
