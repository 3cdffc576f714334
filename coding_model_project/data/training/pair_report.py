"""The bias report of preference pairs: what they teach besides correctness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from coding_model_project.data.training.pairs import Pair, Paired


def bias_report(paired: Paired) -> dict[str, Any]:
    """Return figures for all pairs and for each contrast, and the problems and samples without a pair.

    Returns:
        all, and contrasts by name, each see `_figures`; problems: the number with a pair;
        problems_without: by reason, {"count", "ids"}; left_out: counts by reason.
    """
    names = Counter(str(pair.contrast) for pair in paired.pairs)
    return {
        "problems": len({pair.problem.id for pair in paired.pairs}),
        "all": _figures(paired.pairs),
        "contrasts": {
            name: _figures([pair for pair in paired.pairs if str(pair.contrast) == name])
            for name, _ in names.most_common()
        },
        "problems_without": {
            reason: {"count": len(ids), "ids": list(ids)} for reason, ids in paired.without.items()
        },
        "left_out": dict(paired.left_out),
    }


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return figures about pairs.

    Returns:
        pairs: their number; gold: the number whose chosen side is a gold solution; similarity: the mean;
        chosen_longer, rejected_longer: shares by characters; characters and tokens: means of either
        side, tokens over the pairs with both sides sampled, null if there are none.
    """
    sampled = [p for p in pairs if p.chosen.tokens is not None and p.rejected.tokens is not None]
    return {
        "pairs": len(pairs),
        "gold": sum(pair.chosen.is_gold for pair in pairs),
        "similarity": fmean(pair.similarity for pair in pairs),
        "chosen_longer": fmean(pair.log_ratio > 0 for pair in pairs),
        "rejected_longer": fmean(pair.log_ratio < 0 for pair in pairs),
        "characters": {
            "chosen": fmean(len(pair.chosen.completion) for pair in pairs),
            "rejected": fmean(len(pair.rejected.completion) for pair in pairs),
        },
        "tokens": {
            "chosen": fmean(pair.chosen.tokens or 0 for pair in sampled),
            "rejected": fmean(pair.rejected.tokens or 0 for pair in sampled),
        }
        if sampled
        else None,
    }
