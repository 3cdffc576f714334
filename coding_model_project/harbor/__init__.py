"""Harbor's tasks: read, run, graded, exported and trained on, without Harbor.

format/        a task's folder and its results as values; rewards by Harbor's rules; nothing runs
environment/   where a task runs: the protocol and what all its kinds share; factory.py: by name
rooms/         roots made of this machine's namespaces; containers/: of an engine
trial.py       one attempt at a task; step.py: its steps; agents.py, bash_agent.py: who attempts it
grader.py      a completion judged by a task's verifier; grade_tasks.py: many tasks graded
loader.py      tasks as problems; export/: problems as tasks; evaluation/: a model at work on tasks
"""
