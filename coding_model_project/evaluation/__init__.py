"""Evaluations as resumable runs. See docs/evaluate.md.

settings.py    a checked configuration, with its model profile; protocols.py: sampling protocols
plan.py        data sets in a window of days → samples with seeds
backends/      generation: vLLM in this process, or a server
runner.py      overlapped generation (with repairs) and judging; journal.py: results, written at once
outputs.py     results → metrics.json, qa_logs/, rollouts, report, W&B; tables.py: the same as text
evaluate.py    a whole evaluation in a run's folder, and one put together from shards
results.py     the files of an evaluation's folder; exports.py: the same in the forms of other tools
judged.py      an evaluation's samples as training data; gain.py: a training run's validations
statistics/    pass@k, budgets, intervals, tests; comparison/: evaluations compared with each other
imports/       samples of other tools; rejudging/: stored completions, judged again
watch/         checkpoints of training runs, evaluated as they appear
"""
