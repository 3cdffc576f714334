"""Comparisons of evaluations, problem by problem."""

from coding_model_project.evaluation.comparison.paired import Comparison, Pair, compare
from coding_model_project.evaluation.comparison.sides import (
    Side,
    read_side,
    refuse_other_graders,
    unlike,
)

__all__ = [
    "Comparison",
    "Pair",
    "Side",
    "compare",
    "read_side",
    "refuse_other_graders",
    "unlike",
]
