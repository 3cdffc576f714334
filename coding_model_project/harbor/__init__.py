"""Harbor tasks, read, run, graded, exported and trained on without Harbor.

format/        task folders and results as values, rewards by Harbor's rules; runs nothing
environment/   the protocol of task environments and their shared code; factory.py: environments by name
rooms/         environments made of this machine's namespaces; containers/: of a container engine
trial.py       one attempt at a task; step.py: its steps; agents.py, bash_agent.py: the agents;
               verification.py: a verifier's run; outcome.py: what comes out; records.py: the same on disk
grader.py      grades a completion with a task's verifier; grade_tasks.py: grades many tasks;
               checking.py, forging.py: whether tasks are fit to train on
loader.py      tasks as problems; export/: problems as tasks; evaluation/: a model evaluated on tasks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coding_model_project.harbor.grader import HarborGrader


def task_grader(**given: Any) -> HarborGrader:
    """Return a `grader.HarborGrader`, imported when the first task needs it: most judges have none."""
    from coding_model_project.harbor.grader import HarborGrader

    return HarborGrader(**given)
