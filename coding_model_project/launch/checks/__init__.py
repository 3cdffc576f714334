"""Refusals by key, before verl is imported.

checks.py          their order: values, then files, then the files' content
rules.py, rules.yaml   what single keys accept, always or in some runs
relations.py       keys that must fit together
episode_checks.py  repair, agents and Harbor tasks
row_checks.py      training rows: lengths, and the problems that they name
machine_checks.py  CPUs, GPUs and the Ray cluster
"""
