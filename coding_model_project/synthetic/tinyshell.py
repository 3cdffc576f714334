"""The task set's files: Harbor tasks, problems that refer to them, rows for verl, and a manifest.

<data_dir>/tasks/SPLIT-NUMBER/               Harbor tasks
           problems.jsonl                    a problem per task, judged by the task's verifier
           rl_{train,validation}.parquet     the bash agent's opening
           test.parquet                      held out
           sft_{train,validation}.parquet    episodes of the reference solutions
           manifest.json                     their settings and counts
           base/                             the tiny model, made from scratch on a habit's episodes
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coding_model_project.data.training import rows
from coding_model_project.data.training.rows import is_made
from coding_model_project.episodes.bash import Calls, observation, opening, outcome, reply_message
from coding_model_project.episodes.tool_calls import (
    MARKS,
    RESPONSE_CLOSE,
    RESPONSE_OPEN,
    TOOLS_CLOSE,
    TOOLS_OPEN,
    ToolCall,
    bash_call,
)
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import Message, PromptStyle
from coding_model_project.harbor.environment.base import CommandResult
from coding_model_project.harbor.format.task import RANGE_KEY, write_task
from coding_model_project.harbor.format.task_config import Package, TaskConfig, VerifierConfig
from coding_model_project.synthetic.prepare import MANIFEST, write_set
from coding_model_project.synthetic.tiny_model import DrawnCorpus, StartingModel, TinyModelConfig
from coding_model_project.synthetic.tinyshell_tasks import VERSION, Draw, ShellTask, generate
from coding_model_project.types import Problem

SIZES = {"train": 600, "validation": 64, "test": 200}
N_SHOWN = 200
"""Training tasks with SFT demonstrations; the others are for reinforcement learning."""
HABIT = 0.5
"""The share of actions with the usual mistake in the starting model's corpus."""

_BLOCK_MODEL = TinyModelConfig(vocab_size=512, learning_rate=2e-3, batch_size=24, steps=750)
# Schemas take part of the vocabulary: with 512, most names would be several tokens.
_TOOLS_MODEL = TinyModelConfig(
    vocab_size=640, learning_rate=4e-3, warmup_steps=100, batch_size=24, steps=1000, tools=True
)

_TEST = """#!/bin/bash
# The share of what should have changed that did; 0 if anything else did. Starts no program.
is() {{ local text=; [ -f "$1" ] && IFS= read -rd '' text < "$1"; [ "$text" = "$2" ]; }}
gone() {{ [ ! -e "$1" ] && [ ! -L "$1" ]; }}
rewards=({rewards}) right=0
if cd /app; then
{checks}
fi
echo "${{rewards[right]}}" > /logs/verifier/reward.txt
"""


def prepare_files(
    data_dir: Path, *, seed: int, say: Callable[[str], None], calls: Calls = Calls.block
) -> None:
    """Write the task set's files, unless the folder already holds them.

    Args:
        calls: the form of commands in openings and demonstrations; the tasks are the same.

    Raises:
        ConfigError: the folder holds files with the other form.
    """
    settings: dict[str, Any] = {"generator": VERSION, "seed": seed, "sizes": SIZES}
    if calls is not Calls.block:
        settings["calls"] = str(calls)
    manifest = data_dir / MANIFEST
    if is_made(manifest, settings):
        return
    existing = json.loads(manifest.read_text())["settings"] if manifest.exists() else {}
    if existing and (other := existing.get("calls", str(Calls.block))) != calls:
        raise ConfigError(
            f"{data_dir}: holds tinyshell and a model for coding.bash.calls={other}, not {calls}; choose "
            "another folder (coding.data_dir, --out)"
        )
    say(f"preparing tinyshell in {data_dir} (once)")
    tasks = {split: generate(split, n, seed) for split, n in SIZES.items()}
    for made_of_others in ("tasks", "base"):
        shutil.rmtree(data_dir / made_of_others, ignore_errors=True)
    problems: dict[str, list[Problem]] = {}
    for split, drawn in tasks.items():
        problems[split] = [
            write_shell_task(data_dir, task, f"{split}-{number:04}")
            for number, task in enumerate(drawn)
        ]
    written = {
        "rl_train": _openings(problems["train"][N_SHOWN:], calls),
        "rl_validation": _openings(problems["validation"], calls),
        "test": _openings(problems["test"], calls),
        "sft_train": _episodes(tasks["train"][:N_SHOWN], problems["train"], calls),
        "sft_validation": _episodes(tasks["validation"], problems["validation"], calls),
    }
    write_set(data_dir, settings, (p for members in problems.values() for p in members), written)


def starting_model(seed: int, calls: Calls = Calls.block) -> StartingModel:
    """Return the tiny starting model, which learns from a habit's episodes."""
    tools = calls is Calls.tools
    return StartingModel(
        lambda: HabitCorpus(habit=HABIT, seed=seed, calls=calls),
        f"{'four' if tools else 'two'} minutes on two idle cores",
        _TOOLS_MODEL if tools else _BLOCK_MODEL,
    )


def write_shell_task(data_dir: Path, task: ShellTask, name: str) -> Problem:
    """Write a task's folder, and return its problem, whose path to it is relative to `data_dir`."""
    copied = "COPY files /app\n" if task.before else ""
    difficulty = len(task.commands)
    config = TaskConfig(
        task=Package(name=f"tinyshell/{name}"),
        metadata={"split": task.split, "difficulty": difficulty, RANGE_KEY: [0.0, 1.0]},
        verifier=VerifierConfig(timeout_sec=60),
    )
    solution = "\n".join(task.commands) + "\n"
    files = {
        "instruction.md": task.instruction + "\n",
        "environment/Dockerfile": f"FROM debian:12-slim\nWORKDIR /app\n{copied}",
        **{f"environment/files/{path}": text for path, text in task.before.items()},
        "solution/solve.sh": f"#!/bin/bash\n{solution}",
        "tests/test.sh": _verifier(task.before, task.after),
    }
    write_task(data_dir / "tasks" / name, config, files)
    return Problem(
        id=f"tinyshell/{name}",
        split=task.split,
        statement=task.instruction,
        tests=(),
        language="bash",
        difficulty=difficulty,
        tags=tuple(deed.action.key for deed in task.deeds),
        gold=(solution,),
        task=f"tasks/{name}",
    )


def _verifier(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    kept = [path for path in before if path not in changed]
    checks = [f"    {_check(path, after)} && right=$((right + 1))" for path in changed]
    checks += [f"    {_check(path, after)} || right=0" for path in kept]
    shares = " ".join(f"{n / len(changed):.3g}" for n in range(len(changed) + 1))
    return _TEST.format(rewards=shares, checks="\n".join(checks))


def _check(path: str, after: Mapping[str, str]) -> str:
    if path not in after:
        return f"gone {shlex.quote(path)}"
    return f"is {shlex.quote(path)} {shlex.quote(after[path])}"


def _openings(problems: list[Problem], calls: Calls) -> list[dict[str, Any]]:
    return [
        row | {"prompt": opening(problem.statement, calls)}
        for row, problem in zip(rows.rl_rows(problems, PromptStyle.fenced), problems, strict=True)
    ]


def _episodes(
    tasks: list[ShellTask], problems: list[Problem], calls: Calls
) -> list[dict[str, Any]]:
    return [
        {
            "data_source": rows.source(problem),
            "messages": demonstration(task, calls=calls),
            "extra_info": {"split": problem.split, "problem": problem.id},
        }
        for task, problem in zip(tasks, problems, strict=False)
    ]


# ── traces ────────────────────────────────────────────────────────────────────────────────────────

DONE = "Done."
_N_TEXTS = 2000
_WITHOUT_TOOLS = 0.8
"""Share of `tools` episodes that begin with the task: no system message and no schemas.

Among the schemas' hundred tokens a tiny model takes more than 1,500 steps until it copies names from the
task into its commands; from episodes without them it learns that in half the time.
"""


def trace(
    task: ShellTask, commands: Sequence[str] | None = None, calls: Calls = Calls.block
) -> list[Message]:
    """Return a whole episode in the agent's form.

    Args:
        commands: commands that exit with code 0 and print nothing; by default the reference solution's.
    """
    observed = observation(CommandResult(), command_s=0)
    messages = opening(task.instruction, calls)
    for number, command in enumerate(task.commands if commands is None else commands):
        text, made = f"```bash\n{command}\n```", ()
        if calls is Calls.tools:
            text, made = "", (bash_call(command),)
        messages += [reply_message(number, text, made), *outcome(number, made, observed)]
    return [*messages, {"role": "assistant", "content": DONE}]


def as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a conversation as plain text without tools, as the tiny model's template renders it.

    Calls become part of the assistant's text, outcomes become user messages, and the tools' schemas
    become part of the system message, which must exist.
    """
    shown: list[Message] = []
    for message in messages:
        content = message["content"]
        match message["role"]:
            case "system":
                schemas = "".join(json.dumps(tool) + "\n" for tool in tools)
                content = f"{content}\n{TOOLS_OPEN}\n{schemas}{TOOLS_CLOSE}"
                shown.append({"role": "system", "content": content})
            case "tool":  # one outcome per message: replies of these traces have one call
                content = f"{RESPONSE_OPEN}\n{content}\n{RESPONSE_CLOSE}"
                shown.append({"role": "user", "content": content})
            case role:
                functions = [call["function"] for call in message.get("tool_calls", ())]
                made = [ToolCall(name=f["name"], arguments=f["arguments"]) for f in functions]
                texts = [content] if content else []
                texts += [call.text() for call in made]
                shown.append({"role": role, "content": "\n".join(texts)})
    return shown


def demonstration(
    task: ShellTask, commands: Sequence[str] | None = None, calls: Calls = Calls.block
) -> list[Message]:
    """Return an episode in the form that the tiny model trains on. Arguments are those of `trace`."""
    episode = trace(task, commands, calls)
    return episode if calls.schemas is None else as_text(episode, calls.schemas)


class HabitCorpus(DrawnCorpus):
    """A corpus of episodes with the usual mistakes, from training tasks only.

    Episodes are endless and always new. A model trained on them always samples some right commands, so
    that reinforcement learning can find them.

    Args:
        habit: the share of actions with the usual mistake.
        calls: the form of commands.
    """

    def __init__(self, *, habit: float, seed: int = 0, calls: Calls = Calls.block) -> None:
        self._draw, self._habit, self._calls = Draw("train", seed), habit, calls
        super().__init__(_N_TEXTS)

    def texts(self, rng: random.Random) -> Iterator[str]:
        """See `tiny_model.Corpus`."""
        for text in super().texts(rng):
            for mark in MARKS if self._calls is Calls.tools else ():  # marks are separate tokens
                text = text.replace(mark, "\n")
            yield text

    def one(self, rng: random.Random) -> list[Message]:
        """See `tiny_model.DrawnCorpus`."""
        task = self._draw(rng)
        chosen = [d.wrong if rng.random() < self._habit else d.right for d in task.deeds]
        commands = [command for commands in chosen for command in commands]
        episode = demonstration(task, commands, self._calls)
        if self._calls is Calls.tools and rng.random() < _WITHOUT_TOOLS:
            return episode[1:]
        return episode
