"""Shell tasks and the models that have seen them solved, for trainings of agents."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from coding_model_project.episodes.bash import Calls
from coding_model_project.grading.prompts import Message
from coding_model_project.synthetic.tinyshell import demonstration, generate
from coding_model_project.synthetic.tinyshell_tasks import ShellTask
from tests.end_to_end.conftest import N_PROBLEMS

TASKS = [task for task in generate("train", 40) if len(task.commands) == 1][:N_PROBLEMS]
by_tools = partial(demonstration, calls=Calls.tools)


def taught_model(
    out: Path, shows: Callable[[ShellTask], list[Message]] = demonstration, steps: int = 120
) -> None:
    """Make a model that has seen these tasks solved: it knows the form and half of the words."""
    from coding_model_project.synthetic import tiny_model

    class Shown:
        def texts(self, rng):
            return iter(str(shows(task)) for task in TASKS)

        def draw(self, rng, n):
            return [shows(rng.choice(TASKS)) for _ in range(n)]

    shape = tiny_model.TinyModelConfig(
        vocab_size=400, hidden_size=128, intermediate_size=256, layers=1, steps=steps, batch_size=8,
        warmup_steps=1, max_positions=1024, tools=shows is not demonstration,
    )  # fmt: skip
    tiny_model.pretrain(out, Shown(), shape)
