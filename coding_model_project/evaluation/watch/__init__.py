"""Scores of a training's checkpoints by step, each evaluated once as it appears.

found.py     which checkpoints are there and whole, and the model in each
children.py  evaluations as processes of their own, one per device
other_tools  results of lm-eval, OLMES and commands of one's own
curve.py     what they came to: curve.jsonl, the runs' reports, a view for the terminal
watcher.py   all of it, again and again
"""

from coding_model_project.evaluation.watch.curve import Curve, Point, view
from coding_model_project.evaluation.watch.watcher import Plan, watch

__all__ = ["Curve", "Plan", "Point", "view", "watch"]
