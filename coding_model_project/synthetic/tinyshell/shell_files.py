"""The task set as files: Harbor tasks, problems that name them, rows for verl, and a manifest.

<data_dir>/tasks/SPLIT-NUMBER/               Harbor tasks
           problems.jsonl                    a problem each, judged by its task's verifier
           rl_{train,validation}.parquet     the bash agent's opening
           test.parquet                      held out
           sft_{train,validation}.parquet    episodes of the reference solutions
           manifest.json                     what made them
           base/                             the tiny model, made from scratch on a habit's episodes
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training import rows
from coding_model_project.data.training.training_files import is_made, write_manifest
from coding_model_project.episodes.bash_messages import Calls, opening
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.harbor.format.task import RANGE_KEY
from coding_model_project.harbor.format.task_config import Package, TaskConfig, VerifierConfig
from coding_model_project.harbor.format.writing import write_task
from coding_model_project.synthetic.tiny_model import TinyModelConfig, pretrain_once
from coding_model_project.synthetic.tinyshell.shell_generator import VERSION, ShellTask, generate
from coding_model_project.synthetic.tinyshell.shell_traces import HabitCorpus, as_text, trace
from coding_model_project.types import Problem

SIZES = {"train": 600, "validation": 64, "test": 200}
N_SHOWN = 200
"""Training tasks whose solutions are shown in SFT; the other ones are for reinforcement learning."""
HABIT = 0.5
"""The share of deeds that the starting model's demonstrator does in the usual wrong way."""

# At tinycode's 3e-3, and in half as many steps, its commands still mix up the names.
_BLOCK_MODEL = TinyModelConfig(vocab_size=512, learning_rate=2e-3, batch_size=24, steps=1500)
# Schemas take part of the vocabulary: with 512, most names would be several tokens.
_TOOLS_MODEL = TinyModelConfig(
    vocab_size=640, learning_rate=4e-3, warmup_steps=100, batch_size=24, steps=2000, tools=True
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
    """Write the task set's files, unless the folder already holds just these.

    Args:
        calls: how commands are given in openings and in demonstrations; the tasks are the same.

    Raises:
        ConfigError: the folder holds the files of the other form.
    """
    settings: dict[str, Any] = {"generator": VERSION, "seed": seed, "sizes": SIZES}
    if calls is not Calls.block:
        settings["calls"] = str(calls)
    manifest = data_dir / "manifest.json"
    if is_made(manifest, settings):
        return
    _refuse_other_form(manifest, calls)
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
    write_problems(data_dir / "problems.jsonl", (p for some in problems.values() for p in some))
    written = {
        "rl_train": _openings(problems["train"][N_SHOWN:], calls),
        "rl_validation": _openings(problems["validation"], calls),
        "test": _openings(problems["test"], calls),
        "sft_train": _episodes(tasks["train"][:N_SHOWN], problems["train"], calls),
        "sft_validation": _episodes(tasks["validation"], problems["validation"], calls),
    }
    for name, content in written.items():
        rows.write_rows(data_dir / f"{name}.parquet", content, trains=name.endswith("_train"))
    write_manifest(manifest, settings, {name: len(content) for name, content in written.items()})


def _refuse_other_form(manifest: Path, calls: Calls) -> None:
    there = json.loads(manifest.read_text())["settings"] if manifest.exists() else {}
    if there and (other := there.get("calls", str(Calls.block))) != calls:
        raise ConfigError(
            f"{manifest.parent}: holds tinyshell and a model for coding.bash.calls={other}, not "
            f"{calls}; choose another folder (coding.data_dir, --out)"
        )


def prepare_model(
    data_dir: Path, *, seed: int, say: Callable[[str], None], calls: Calls = Calls.block
) -> None:
    """Pre-train the tiny starting model into `data_dir/base`, unless it is there."""
    tools = calls is Calls.tools
    pretrain_once(
        data_dir,
        lambda: HabitCorpus(habit=HABIT, seed=seed, calls=calls),
        _TOOLS_MODEL if tools else _BLOCK_MODEL,
        seed=seed,
        takes=f"{'seven' if tools else 'four'} minutes on two idle cores",
        say=say,
    )


def write_shell_task(data_dir: Path, task: ShellTask, name: str) -> Problem:
    """Write a task's folder below `data_dir/tasks`; the problem names it relative to `data_dir`."""
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
    schemas = calls.schemas

    def episodes() -> Iterator[dict[str, Any]]:
        for task, problem in zip(tasks, problems, strict=False):
            about = {"split": problem.split, "problem": problem.id}
            episode = trace(task, calls=calls)
            yield {
                "data_source": rows.source(problem),
                "messages": episode if schemas is None else as_text(episode, schemas),
                "extra_info": about,
            }

    return list(episodes())
