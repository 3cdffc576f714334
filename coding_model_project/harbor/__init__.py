"""Harbor's task format and its results, read and written exactly; rewards by its rules.

task.py: a task's folder as a value; config.py: its task.toml; tasks.py: many of them, a bad one set
aside; rewards.py: what a verifier's files are worth; results.py: trials and jobs as Harbor keeps them.
"""
