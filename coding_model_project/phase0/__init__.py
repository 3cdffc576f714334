"""An evaluation as a run: its samples, its folder, how it goes on after a kill. See docs/evaluate.md.

settings.py   the configuration as frozen values
plan.py       data sets → samples with seeds; shards
journal.py    files that are appended to, by one process, whole lines only
runner.py     generation and judging, overlapped
outputs.py    results → metrics.json, qa_logs/, rollouts, report, W&B
evaluate.py   all of it in a run's folder
shards.py     one evaluation over several processes, and back together
"""

from __future__ import annotations

from coding_model_project.phase0.evaluate import evaluate
from coding_model_project.phase0.settings import Settings, new_config, simple_backend

__all__ = ["Settings", "evaluate", "new_config", "simple_backend"]
