"""Evaluation of a training run's checkpoints, each once as it appears.

found.py     complete checkpoints on disk, and their models
children.py  evaluations as child processes, one per device
other_tools  results of lm-eval, OLMES and custom commands
curve.py     scores by step: curve.jsonl, the runs' reports, a view for the terminal
watcher.py   the polling loop
"""

from coding_model_project.evaluation.watch.curve import Curve, Point, view
from coding_model_project.evaluation.watch.watcher import Plan, watch

__all__ = ["Curve", "Plan", "Point", "view", "watch"]
