"""What a model is shown of the bash agent's conversation: the reference solution, or usual mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from coding_model_project.episodes.bash import observation, opening
from coding_model_project.grading.prompts import Message
from coding_model_project.harbor.environment.base import CommandResult
from coding_model_project.synthetic.tinyshell.shell_generator import Draw, ShellTask

DONE = "Done."
_N_TEXTS = 2000


def trace(task: ShellTask, commands: Sequence[str] | None = None) -> list[Message]:
    """A whole episode, as the agent would have it.

    Args:
        commands: that end with exit code 0 and print nothing; the reference solution's by default.
    """
    told = observation(CommandResult(), command_s=0)
    messages = opening(task.instruction)
    for command in task.commands if commands is None else commands:
        messages += [_reply(f"```bash\n{command}\n```"), {"role": "user", "content": told}]
    return [*messages, _reply(DONE)]


def _reply(content: str) -> Message:
    return {"role": "assistant", "content": content}


class HabitCorpus:
    """Episodes of somebody with habits, who does each thing in the usual wrong way so often.

    Without end and drawn anew; of training words alone. A model of these has always the right command
    among what it samples, so that reinforcement learning can find it.

    Args:
        habit: the share of wrong ones.
    """

    def __init__(self, *, habit: float, seed: int = 0) -> None:
        self._draw, self._habit = Draw("train", seed), habit

    def texts(self, rng: random.Random) -> Iterator[str]:
        """See `tiny_model.Corpus`."""
        for conversation in self.draw(rng, _N_TEXTS):
            yield "\n".join(f"{message['role']}\n{message['content']}" for message in conversation)

    def draw(self, rng: random.Random, n: int) -> list[list[Message]]:
        """See `tiny_model.Corpus`."""
        return [self._episode(rng) for _ in range(n)]

    def _episode(self, rng: random.Random) -> list[Message]:
        task = self._draw(rng)
        chosen = [d.wrong if rng.random() < self._habit else d.right for d in task.deeds]
        return trace(task, [command for commands in chosen for command in commands])
