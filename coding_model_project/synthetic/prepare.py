"""The embedded task sets and starting models as files, made once and reused.

<data_dir>/problems.jsonl                    every problem with its tests, all splits
           sft_{train,validation}.parquet    demonstrations of the easy levels
           rl_{train,validation}.parquet     the other training tasks, without gold solutions
           test.parquet                      held out: evaluation only
           manifest.json                     their settings, counts and hashes
           base/                             the tiny model, pre-trained on a noisy corpus
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training import rows
from coding_model_project.data.training.rows import is_made, write_manifest
from coding_model_project.episodes.bash import Calls
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.synthetic.tiny_model import StartingModel, pretrain_once
from coding_model_project.types import Problem

MANIFEST = "manifest.json"
EASY_LEVELS = (1, 2)
N_SFT_VALIDATION = 64
N_RL_VALIDATION = 150

SETS = {
    "tinycode": __name__,
    "tinymix": "coding_model_project.synthetic.tinymix",
    "tinygolf": "coding_model_project.synthetic.tinygolf",
    "tinyshell": "coding_model_project.synthetic.tinyshell",
}
"""The task sets' modules, each with `prepare_files` and `starting_model`."""

Say = Callable[[str], None]


def prepare(coding: Any, model_path: str | None, *, say: Say) -> None:
    """Make the missing files that the resolved `coding:` subtree needs. Does nothing for your own data.

    Args:
        coding: the `coding:` subtree; `coding.dataset` names an embedded task set, or is null.
        model_path: the run's starting model; made if it is the embedded one.

    Raises:
        ConfigError: there is no such task set, or the folder holds files made with other settings.
    """
    if coding.dataset is None:
        return
    if coding.dataset not in SETS:
        raise ConfigError(
            f"coding.dataset={coding.dataset}: expected an embedded task set ({', '.join(SETS)}); for "
            "your own files set coding.dataset=null"
        )
    data_dir, made = Path(coding.data_dir), import_module(SETS[coding.dataset])
    seed, size = coding.tinycode.seed, coding.tinycode.sft_demonstrations
    how = {"calls": Calls(coding.bash.calls)} if coding.dataset == "tinyshell" else {}
    own = (
        {"style": coding.prompt, "sft_demonstrations": size} if coding.dataset == "tinycode" else {}
    )
    made.prepare_files(data_dir, seed=seed, say=say, **how, **own)
    if model_path is not None and Path(model_path).absolute() == data_dir / "base":
        pretrain_once(data_dir, made.starting_model(seed, **how), seed=seed, say=say)


def prepare_evaluated(coding: Any, *, say: Say) -> None:
    """Make the embedded model and its tasks, if that model is evaluated and missing."""
    model, server = coding.evaluation.model, coding.evaluation.base_url
    if server is None and Path(model).absolute() == Path(coding.data_dir) / "base":
        prepare(coding, model, say=say)


def prepare_files(
    data_dir: Path, *, style: PromptStyle, seed: int, sft_demonstrations: int, say: Say
) -> None:
    """Write the task set's files, unless the folder already holds them.

    Raises:
        ConfigError: the folder holds files that no generator made.
    """
    from coding_model_project.synthetic import tinycode

    settings = {
        "generator": tinycode.VERSION,
        "seed": seed,
        "style": str(style),
        "sft_demonstrations": sft_demonstrations,
    }
    if is_made(data_dir / MANIFEST, settings):
        return
    say(f"preparing tinycode in {data_dir} (once)")
    tasks = tinycode.generate(seed=seed)
    train = tasks.problems("train")
    validation = tasks.problems("validation")
    test = tasks.problems("test")

    easy = [problem for problem in train if problem.difficulty in EASY_LEVELS]
    random.Random(seed).shuffle(easy)
    shown = easy[:sft_demonstrations]
    ids = {problem.id for problem in shown}
    unshown = [problem for problem in train if problem.id not in ids]
    easy_validation = [p for p in validation if p.difficulty in EASY_LEVELS][:N_SFT_VALIDATION]

    written = {
        "sft_train": rows.sft_rows(shown, style),
        "sft_validation": rows.sft_rows(easy_validation, style),
        "rl_train": rows.rl_rows(unshown, style),
        "rl_validation": rows.rl_rows(validation[:N_RL_VALIDATION], style),
        "test": rows.rl_rows(test, style),
    }
    write_set(data_dir, settings, (*train, *validation, *test), written)


def write_set(
    data_dir: Path,
    settings: Mapping[str, Any],
    problems: Iterable[Problem],
    written: Mapping[str, Iterable[dict[str, Any]]],
) -> None:
    """Write a task set's problems and rows, and at last its manifest.

    Args:
        written: rows by the file's name; those of a name in `_train` train.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    write_problems(data_dir / "problems.jsonl", problems)
    counts = {
        name: rows.write_rows(data_dir / f"{name}.parquet", made, trains=name.endswith("_train"))
        for name, made in written.items()
    }
    write_manifest(data_dir / MANIFEST, settings, counts)


def starting_model(seed: int) -> StartingModel:
    """Return the tiny starting model, which learns from noisy programs."""
    from coding_model_project.synthetic import tinycode

    return StartingModel(
        lambda: tinycode.NoisyPrograms(tinycode.generate(seed=seed)), "a minute and a half"
    )
