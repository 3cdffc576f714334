"""Harbor tasks, read, run, graded, exported and trained on without Harbor.

format/        task folders and results as values, rewards by Harbor's rules; runs nothing
environment/   the protocol of task environments; containers, and environments of other programs;
               factory.py: environments by name
rooms/         environments made of this machine's namespaces
trial.py       one attempt at a task; agents.py: who attempts it; verification.py: its verifier's run;
               outcome.py: what comes out, and the same on disk; trajectory.py: what an agent did, on disk
grader.py      grades a completion with a task's verifier
checking.py    grades many tasks, and checks whether they are fit to train on
interface.py   tasks from Python; harbor_config.py: `coding.harbor` and `coding.agent`
gateway/       records the tokens of any agent; posttrain/: tasks that post-train models
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
