"""Evaluation of a training run's checkpoints, each once as it appears.

found.py    complete checkpoints on disk or behind URLs, and their models
curve.py    scores by step, also of other tools: curve.jsonl, the runs' reports, a view for the terminal
watcher.py  the polling loop, and evaluations as child processes, one per device
"""

from coding_model_project.evaluation.watch.curve import Curve, Point, view
from coding_model_project.evaluation.watch.watcher import Plan, watch

__all__ = ["Curve", "Plan", "Point", "view", "watch"]
