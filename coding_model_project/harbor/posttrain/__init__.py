"""Post-training tasks: given a base model, hours and a benchmark, an agent submits better weights.

benchmarks.py   the benchmarks, and the problems that an agent may train on
base_models.py  the base models
generating.py   writes a task's folder
task_texts.py   the folder's texts, most of them files of texts/
oracle.py       the reference solution of the tiny task: a plain PyTorch script
agent_evaluate.py  the agent's evaluate.py
verifier/       the program of tests/test.sh: judges, evaluation, reward
"""
