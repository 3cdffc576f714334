"""Commands that messages advise, apart from what they are checked with."""

MAKE_PAIRS = (
    "make it with `python -m coding_model_project data pairs EVALUATION --problems P --out {}`"
)
"""Makes a file of preference pairs; {} stands for its path."""
