"""Commands that error messages recommend."""

MAKE_PAIRS = (
    "make it with `python -m coding_model_project data pairs EVALUATION --problems P --out {}`"
)
"""Advice for making a file of preference pairs; {} stands for its path."""
