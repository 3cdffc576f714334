"""A micro-batch as one row of tokens, without padding and with each shared prompt once.

The samples of a GRPO group, and both sides of a preference pair, begin with the same tokens. Keys and
values of a prompt do not depend on what follows, so `packed_attention` lets all samples attend to one
copy. Losses and gradients are those of separate samples, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive tokens of a pack, which attend to those before them in the segment and to a prompt."""

    length: int
    prompt: int | None = None
    """Index of the segment that this one continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """The tokens of a micro-batch, and the places of their log-probabilities.

    N is the number of tokens of all samples, M ≤ N that of the pack, K ≤ M the number of its tokens that
    predict a response token, and R ≥ K the number of response tokens.
    """

    segments: tuple[Segment, ...]
    tokens: torch.Tensor
    """(M,): each of the pack's tokens as an index into the N tokens."""
    kept: torch.Tensor
    """(K,): the predicting tokens, as indices into the pack."""
    rows: torch.Tensor
    """(R,): for each response token, the index into `kept` of the token that predicts it."""
    predicting: torch.Tensor
    """(R,): the same, as an index into the N tokens; the response token is the next one."""


def pack(ids: torch.Tensor, offsets: Sequence[int], prompts: Sequence[int], share: bool) -> Pack:
    """Pack samples.

    Args:
        ids: (N,): tokens of all samples, one after another.
        offsets: where each sample begins, then N.
        prompts: number of leading tokens of each sample that are not trained on.
        share: compute consecutive equal prompts once.
    """
    segments: list[Segment] = []
    pieces: list[tuple[int, int]] = []
    place = torch.zeros(len(ids), dtype=torch.long)
    """Each of the N tokens as an index into the pack."""
    size = 0

    def add(start: int, end: int, prompt: int | None = None) -> None:
        nonlocal size
        segments.append(Segment(length=end - start, prompt=prompt))
        pieces.append((start, end))
        place[start:end] = torch.arange(size, size + end - start)
        size += end - start

    for group in _groups(ids, offsets, prompts, share):
        if len(group) == 1:
            add(offsets[group[0]], offsets[group[0] + 1])
            continue
        shared, first = len(segments), offsets[group[0]]
        n = prompts[group[0]]
        add(first, first + n)
        for sample in group:
            start, end = offsets[sample], offsets[sample + 1]
            place[start : start + n] = place[first : first + n]
            if start + n < end:
                add(start + n, end, shared)
    predicting = torch.cat(
        [
            torch.arange(offsets[sample] + max(0, prompts[sample] - 1), offsets[sample + 1] - 1)
            for sample in range(len(prompts))
        ]
    )
    kept, rows = place[predicting].unique(return_inverse=True)
    return Pack(
        segments=tuple(segments),
        tokens=torch.cat([torch.arange(start, end) for start, end in pieces]),
        kept=kept,
        rows=rows,
        predicting=predicting,
    )


def _groups(
    ids: torch.Tensor, offsets: Sequence[int], prompts: Sequence[int], share: bool
) -> Iterator[list[int]]:
    """Yield runs of consecutive samples that share a prompt."""

    def prompt(sample: int) -> tuple[int, ...]:
        start = offsets[sample]
        return tuple(ids[start : start + prompts[sample]].tolist())

    samples = range(len(prompts))
    if share:
        yield from (list(run) for _, run in groupby(samples, key=lambda i: prompt(i) or (-1, i)))
    else:
        yield from ([sample] for sample in samples)
