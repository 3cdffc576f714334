"""Post-training tasks: given a base model, hours and a benchmark, an agent submits better weights.

benchmarks.py   the benchmarks, the problems that an agent may train on, and the base models
generating.py   writes a task's folder, with the texts of texts/
oracle.py       the reference solution of the tiny task: a plain PyTorch script

verify.py         the program of tests/test.sh: judges, evaluates, and writes the reward last
submission.py     the submitted model, whose weights must come from the base's
left_files.py     the text of everything that the agent left
contamination.py  searches that text for test problems
language_judge.py asks a language model the same, if one is configured
scoring.py        a model's score by our evaluation; the agent's evaluate.py
"""
