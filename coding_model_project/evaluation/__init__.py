"""Evaluations as resumable runs. See docs/evaluate.md.

settings.py    a checked configuration, with its model profile
plan.py        sampling protocols; data sets in a window of days → samples with seeds
backends/      generation: vLLM in this process, or a server
runner.py      overlapped generation (with repairs) and judging; journal.py: results, written at once
outputs.py     results → metrics.json, qa_logs/, rollouts, report, W&B; tables.py: the same as text
evaluate.py    a whole evaluation in a run's folder, and one put together from shards
results.py     the files of an evaluation's folder
judged.py      an evaluation's samples as training data
scores.py      metrics of a data set, pass rate by budget; intervals.py: pass@k, its intervals, tests
comparison.py  evaluations compared with each other
gain.py        a training run's first validation compared with its last
importing.py   samples of other tools, read by import_formats.py
rejudging.py   stored completions, judged again; changes.py: changed verdicts and their causes
watch/         checkpoints of training runs, evaluated as they appear
"""
