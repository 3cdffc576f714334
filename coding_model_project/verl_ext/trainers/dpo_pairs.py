"""DPO's pairs: a data set for verl's SFT trainer, with two tokenised conversations per item, and losses.

Shapes: B pairs; R = 2B rows: chosen, rejected, chosen, ... A score is log π(y|x) - log π_ref(y|x), summed
over the tokens of an answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import torch
from omegaconf import DictConfig
from torch import Tensor
from torch.nn.functional import logsigmoid
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.tokenizer.chat_template import extract_system_prompt_and_generation

from coding_model_project.configs.schema import DPOLoss
from coding_model_project.errors import ConfigError

Row = dict[str, torch.Tensor]
"""verl's tensors of a conversation: input_ids, position_ids, loss_mask (1 at the answer); each (j,)."""

COLUMNS = ("prompt", "chosen", "rejected")


class PairDataset(MultiTurnSFTDataset):
    """Pairs of files, which verl tokenises and masks as for SFT.

    `reference` holds the answers' log-probabilities under the reference, of shape (2 * len(self),), once
    they are known.
    """

    def __init__(self, files: Sequence[str], tokenizer: Any, config: DictConfig) -> None:
        """
        Args:
            config: the whole configuration.

        Raises:
            ConfigError: no pair is left.
        """
        # Set aside below, since verl would truncate a pair that is too long, or stop when it reaches it.
        data = config.data.copy()
        data.max_length = sys.maxsize
        super().__init__(list(files), tokenizer, data)
        self.reference: torch.Tensor | None = None
        kept: list[int] = []
        n_equal = n_long = self.max_token = 0
        for pair in range(len(self.messages) // 2):
            rows = self._pair(pair)
            longest = max(len(row["input_ids"]) for row in rows)
            if torch.equal(rows[0]["input_ids"], rows[1]["input_ids"]):
                n_equal += 1
            elif longest <= config.data.max_length:
                kept.append(pair)
                self.max_token = max(self.max_token, *(int(row["input_ids"].max()) for row in rows))
            else:
                n_long += 1
        self._kept = kept
        self.set_aside = {"too long": n_long, "equal sides": n_equal}
        if not kept:
            why = ", ".join(f"{n} {reason}" for reason, n in self.set_aside.items() if n)
            raise ConfigError(f"{', '.join(files)}: no pair to train on ({why or 'it is empty'})")

    def _read_files_and_process(self) -> None:
        """Read each row of the files as two conversations, in place of verl's one."""
        tables = (pq.read_table(file, columns=list(COLUMNS)) for file in self.parquet_files)
        self.messages = [
            [*row["prompt"], {"role": "assistant", "content": row[side]}]
            for table in tables
            for row in table.to_pylist()
            for side in ("chosen", "rejected")
        ]
        self.dataframe = pd.DataFrame({self.messages_key: self.messages})
        self.tools = self.enable_thinking = None
        self.system_prompt, self.generation_prompt = extract_system_prompt_and_generation(
            self.tokenizer, **self.apply_chat_template_kwargs
        )

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, item: int) -> list[Row]:  # pyrefly: ignore[bad-override]  # verl's is one row
        """Return the chosen row and the rejected one, with `reference` if it is known."""
        rows = self._pair(self._kept[item])
        if self.reference is not None:
            for row, value in zip(rows, self.reference[2 * item : 2 * item + 2], strict=True):
                row["reference"] = value
        return rows

    def _pair(self, number: int) -> list[Row]:
        return [super(PairDataset, self).__getitem__(2 * number + side) for side in (0, 1)]


class PairCollator:
    """A collator from pairs to a batch of rows: chosen, rejected, chosen, ..."""

    def __init__(self, pad_mode: Any) -> None:
        self._collate = SFTTensorCollator(pad_mode)

    def __call__(self, pairs: Sequence[Sequence[Row]]) -> dict[str, torch.Tensor]:
        rows = [dict(row) for pair in pairs for row in pair]
        references = [row.pop("reference") for row in rows if "reference" in row]
        batch = self._collate(rows)
        return batch | ({"reference": torch.stack(references)} if references else {})


def answer_log_probs(log_probs: Tensor, answer_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the log-probability and the length of each row's answer.

    Args:
        log_probs: jagged, (R, j); each position has the log-probability of the *next* token of its row.
        answer_mask: jagged, (R, j); 1 at the tokens of the answer. A row begins with its prompt.

    Returns:
        Sums over the answers' tokens, and their counts; each of shape (R,).
    """
    # Shifted by one like log_probs; only the first token of a prompt wraps around.
    mask = torch.roll(answer_mask.values(), shifts=-1).to(log_probs.dtype)
    lengths = log_probs.offsets().diff()  # pyrefly: ignore[missing-attribute]  # of jagged tensors
    rows = torch.repeat_interleave(lengths)
    zeros = torch.zeros(len(lengths), dtype=log_probs.dtype, device=mask.device)
    sums = zeros.index_add(0, rows, log_probs.values() * mask)
    return sums, zeros.index_add(0, rows, mask)


def pair_losses(
    log_probs: Tensor, answer_mask: Tensor, reference: Tensor, settings: DictConfig
) -> dict[str, Tensor]:
    """Compute the loss of each pair of a batch, and its metrics; each of shape (B,).

    From the scores s⁺ and s⁻ of the chosen and the rejected answer, with Δ = s⁺ - s⁻:

    sigmoid: -log σ(βΔ)
        Rafailov et al. 2023, "Direct Preference Optimization", equation 7.
    cdpo: -(1 - ε) log σ(βΔ) - ε log σ(-βΔ), for labels that are wrong with probability ε
        Mitchell 2023, "A note on DPO with noisy preferences & relationship to IPO", equation 3.
    ipo: (s⁺/|y⁺| - s⁻/|y⁻| - 1/(2β))²
        Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human
        Preferences", equation 17 with τ = β. Scores are means over tokens, as in TRL, which has this
        from IPO's authors: sums would weigh a pair by its length.

    Args:
        log_probs, answer_mask: as for `answer_log_probs`.
        reference: (R,); the answers' log-probabilities under the reference.
        settings: as `schema.DPOConfig`: β is `beta`, and ε `label_smoothing`, for cdpo only.

    Returns:
        `loss`; the other metrics have no gradient: the reward of each side, which is βs (Rafailov et al.
        2023, equation 5, up to a constant), their difference `margin`, and `accuracy`, 1 if that is above
        zero.
    """
    beta, kind = settings.beta, DPOLoss[settings.loss]
    sums, tokens = answer_log_probs(log_probs, answer_mask)
    scores = (sums - reference.to(sums)).view(-1, 2)
    chosen, rejected = (beta * scores.detach()).unbind(1)
    logits = beta * (scores[:, 0] - scores[:, 1])
    if kind is DPOLoss.ipo:
        means = scores / tokens.view(-1, 2)
        loss = (means[:, 0] - means[:, 1] - 1 / (2 * beta)) ** 2
    elif kind is DPOLoss.cdpo:
        kept = (1 - settings.label_smoothing) * logsigmoid(logits)
        loss = -kept - settings.label_smoothing * logsigmoid(-logits)
    else:
        loss = -logsigmoid(logits)
    return {
        "loss": loss,
        "rewards_chosen": chosen,
        "rewards_rejected": rejected,
        "margin": chosen - rejected,
        "accuracy": (chosen > rejected).to(chosen.dtype),
    }
