"""Evaluations as resumable runs. See docs/evaluate.md.

settings.py    the configuration as frozen values; protocols.py: sampling protocols
plan.py        data sets → samples with seeds; shards.py: one evaluation over several processes
backends/      generation: vLLM in this process, or a server
runner.py      overlapped generation and judging; journal.py: each sample's result, written at once
outputs.py     results → metrics.json, qa_logs/, rollouts, report, W&B
evaluate.py    a whole evaluation in a run's folder
statistics/    pass@k, budgets, intervals, tests; comparison/: evaluations compared with each other
watch/         checkpoints of training runs, evaluated as they appear
"""
