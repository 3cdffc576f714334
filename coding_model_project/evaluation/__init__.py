"""An evaluation as a run: its samples, its folder, how it goes on after a kill. See docs/evaluate.md.

settings.py    the configuration as frozen values; protocols.py: how models are asked
plan.py        data sets → samples with seeds; shards.py: one evaluation over several processes
backends/      who answers: vLLM in this process, a server
runner.py      generation and judging, overlapped; journal.py: what each sample came to, kept at once
outputs.py     results → metrics.json, qa_logs/, rollouts, report, W&B
evaluate.py    all of it in a run's folder
statistics/    pass@k, budgets, intervals, tests; comparison/: evaluations against each other
watch/         the checkpoints of a training, evaluated as they appear
"""
