"""DPO losses on log-probabilities of pairs, in torch alone, without verl.

Shapes: B pairs; R = 2B rows: chosen, rejected, chosen, ... A score is log π(y|x) - log π_ref(y|x), summed
over the tokens of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from coding_model_project.configs.schema import DPOLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScores:
    """Scores and lengths of both answers of B pairs; each of shape (B,)."""

    chosen: Tensor
    """Scores of the chosen answers: the policy's log-probability minus the reference's."""
    rejected: Tensor
    chosen_tokens: Tensor
    """Number of tokens of the chosen answers."""
    rejected_tokens: Tensor


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
    lengths = log_probs.offsets().diff()  # type: ignore[attr-defined]  # of jagged tensors
    rows = torch.repeat_interleave(lengths)
    zeros = torch.zeros(len(lengths), dtype=log_probs.dtype, device=mask.device)
    sums = zeros.index_add(0, rows, log_probs.values() * mask)
    return sums, zeros.index_add(0, rows, mask)


def pair_scores(log_probs: Tensor, answer_mask: Tensor, reference: Tensor) -> PairScores:
    """Compute the scores of the pairs in a batch.

    Args:
        log_probs, answer_mask: as for `answer_log_probs`.
        reference: (R,); the answers' log-probabilities under the reference.
    """
    sums, tokens = answer_log_probs(log_probs, answer_mask)
    scores = sums - reference.to(sums)
    return PairScores(
        chosen=scores[0::2],
        rejected=scores[1::2],
        chosen_tokens=tokens[0::2],
        rejected_tokens=tokens[1::2],
    )


def pair_losses(
    scores: PairScores, *, kind: DPOLoss, beta: float, label_smoothing: float = 0.0
) -> Tensor:
    """Compute each pair's loss, of shape (B,), from the scores s⁺ and s⁻ with Δ = s⁺ - s⁻.

    sigmoid: -log σ(βΔ)
        Rafailov et al. 2023, "Direct Preference Optimization", equation 7.
    cdpo: -(1 - ε) log σ(βΔ) - ε log σ(-βΔ), for labels that are wrong with probability ε
        Mitchell 2023, "A note on DPO with noisy preferences & relationship to IPO", equation 3.
    ipo: (s⁺/|y⁺| - s⁻/|y⁻| - 1/(2β))²
        Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human
        Preferences", equation 17 with τ = β. Scores are means over tokens, as in TRL, which has this
        from IPO's authors: sums would weigh a pair by its length.

    Args:
        beta: strength of the regularization towards the reference.
        label_smoothing: ε in [0, 0.5), for cdpo only.
    """
    if kind is DPOLoss.ipo:
        margins = scores.chosen / scores.chosen_tokens - scores.rejected / scores.rejected_tokens
        return (margins - 1 / (2 * beta)) ** 2
    logits = beta * (scores.chosen - scores.rejected)
    if kind is DPOLoss.cdpo:
        kept = (1 - label_smoothing) * logsigmoid(logits)
        return -kept - label_smoothing * logsigmoid(-logits)
    return -logsigmoid(logits)


def pair_metrics(scores: PairScores, *, beta: float) -> dict[str, Tensor]:
    """Compute the metrics of each pair, without gradient; each of shape (B,).

    The reward of each side is βs (Rafailov et al. 2023, equation 5, up to a constant). `margin` is their
    difference, and `accuracy` is 1 if it is above zero.
    """
    chosen = beta * scores.chosen.detach()
    rejected = beta * scores.rejected.detach()
    return {
        "rewards_chosen": chosen,
        "rewards_rejected": rejected,
        "margin": chosen - rejected,
        "accuracy": (chosen > rejected).to(chosen.dtype),
    }
