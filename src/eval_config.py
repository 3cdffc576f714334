"""Names of the protocols and data sets of Phase 0, for study scripts; see evaluation/plan.py."""

from __future__ import annotations

from coding_model_project.evaluation.plan import BUDGET, GREEDY, SAMPLED

EVAL_AT_1 = GREEDY
EVAL_AT_K = SAMPLED
EVAL_AT_BUDGET = BUDGET

PHASE0_SETS = ("humaneval", "mbpp_reg", "codecontests_valid")
"""Data sets for a final number, a quick regression check, and the choice of hyper-parameters."""
