"""Post-training tasks: an agent gets a base model, hours and a benchmark, and submits better weights.

benchmarks.py   what can be measured, and the problems that an agent may learn from
base_models.py  the models that tasks begin with
generating.py   a task's folder
task_texts.py   the texts in it
carried.py      this package as an archive, for images that do not have it
oracle.py       the reference solution of the tiny task: a plain PyTorch script
agent_evaluate.py  the agent's evaluate.py
verifier/       what a task's tests/test.sh runs: judges, evaluation, reward
"""
