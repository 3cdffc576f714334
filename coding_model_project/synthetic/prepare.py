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
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from coding_model_project.data.problems import write_problems
from coding_model_project.data.training import rows
from coding_model_project.data.training.training_files import is_made, write_manifest
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle

EASY_LEVELS = (1, 2)
N_SFT_VALIDATION = 64
N_RL_VALIDATION = 150

OTHERS = {
    "tinygolf": "coding_model_project.synthetic.tinygolf",
    "tinymix": "coding_model_project.synthetic.tinymix",
    "tinyshell": "coding_model_project.synthetic.tinyshell.shell_files",
}
"""The other task sets' modules, each with `prepare_files` and `prepare_model`."""

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
    data_dir = Path(coding.data_dir)
    own_model = model_path is not None and Path(model_path).absolute() == data_dir / "base"
    seed = coding.tinycode.seed
    if coding.dataset in OTHERS:
        others = import_module(OTHERS[coding.dataset])
        more = {"calls": Calls(coding.bash.calls)} if coding.dataset == "tinyshell" else {}
        others.prepare_files(data_dir, seed=seed, say=say, **more)
        if own_model:
            others.prepare_model(data_dir, seed=seed, say=say, **more)
        return
    if coding.dataset != "tinycode":
        raise ConfigError(
            f"coding.dataset={coding.dataset}: expected an embedded task set (tinycode, "
            f"{', '.join(OTHERS)}); for your own files set coding.dataset=null"
        )
    prepare_tinycode(
        data_dir,
        style=coding.prompt,
        seed=seed,
        sft_demonstrations=coding.tinycode.sft_demonstrations,
        say=say,
    )
    if own_model:
        prepare_base_model(data_dir, seed=seed, say=say)


def prepare_evaluated(coding: Any, *, say: Say) -> None:
    """Make the embedded model and its tasks, if that model is evaluated and missing."""
    model, server = coding.evaluation.model, coding.evaluation.base_url
    if server is None and Path(model).absolute() == Path(coding.data_dir) / "base":
        prepare(coding, model, say=say)


def prepare_tinycode(
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
    manifest = data_dir / "manifest.json"
    if is_made(manifest, settings):
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

    data_dir.mkdir(parents=True, exist_ok=True)
    write_problems(data_dir / "problems.jsonl", (*train, *validation, *test))
    written = {
        "sft_train": (rows.sft_rows(shown, style), True),
        "sft_validation": (rows.sft_rows(easy_validation, style), False),
        "rl_train": (rows.rl_rows(unshown, style), True),
        "rl_validation": (rows.rl_rows(validation[:N_RL_VALIDATION], style), False),
        "test": (rows.rl_rows(test, style), False),
    }
    counts = {}
    for name, (made, trains) in written.items():
        content = list(made)
        rows.write_rows(data_dir / f"{name}.parquet", content, trains=trains)
        counts[name] = len(content)
    write_manifest(manifest, settings, counts)


def prepare_base_model(data_dir: Path, *, seed: int, say: Say) -> None:
    """Pre-train the tiny starting model into `data_dir/base`, unless it exists."""
    from coding_model_project.synthetic import tinycode
    from coding_model_project.synthetic.tiny_model import TinyModelConfig, pretrain_once

    pretrain_once(
        data_dir,
        lambda: tinycode.NoisyPrograms(tinycode.generate(seed=seed)),
        TinyModelConfig(),
        seed=seed,
        takes="about two minutes",
        say=say,
    )
