"""Studies: their definitions (question, arms, metric, stop rule), and the runs of their members.

question: Does … ?
expected: What is thought to come out, and why.
stop: When the study ends, and what it decides.
seeds: [1, 2]
arms:                      # the first is what the others are held against
  sparse:
    - grpo: [experiment=sparse]
  with_sft:                # stages, each from the one before it
    - sft: [trainer.total_training_steps=40]
    - grpo: ["actor_rollout_ref.model.path={previous}"]
shared:                    # overrides of every stage by this recipe, before the arms' own
  grpo: [trainer.total_training_steps=12]
evaluation: [coding.evaluation.protocol=sampled]    # overrides of recipes.baseline
k: 1                       # of the pass@k that decides
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from coding_model_project.atomic import write_text
from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.handover.export import export, source
from coding_model_project.launch.steps import running
from coding_model_project.runs.folder import RunFolder, State, sole_writer

PREVIOUS = "{previous}"
"""Placeholder in overrides for the folder of the previous stage's model."""

_TEXTS = ("question", "expected", "stop")
_REQUIRED = (*_TEXTS, "seeds", "arms", "evaluation")
_OPTIONAL = ("shared", "k")
_NAME = re.compile(r"\w[\w-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A training stage of an arm."""

    recipe: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study's definition."""

    path: Path
    text: str
    question: str
    expected: str
    stop: str
    seeds: tuple[int, ...]
    arms: Mapping[str, tuple[Stage, ...]]
    evaluation: tuple[str, ...]
    k: int

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def page(self) -> Path:
        """Path of the study's page, beside the folder of definitions."""
        return self.path.parent.parent / f"{self.name}.md"

    @property
    def first(self) -> str:
        """The arm with which the others are compared."""
        return next(iter(self.arms))


def read_study(path: Path) -> Study:
    """Read a definition.

    Raises:
        ConfigError: a key is missing, unknown or invalid; names the file and the key.
    """
    try:
        text = path.read_text()
        content = yaml.safe_load(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: not a mapping of keys")
    missing = [key for key in _REQUIRED if not content.get(key)]
    unknown = [key for key in content if key not in (*_REQUIRED, *_OPTIONAL)]
    if missing or unknown:
        issue = f"missing key {missing[0]}" if missing else f"unknown key {unknown[0]}"
        raise ConfigError(f"{path}: {issue}; known keys are {', '.join((*_REQUIRED, *_OPTIONAL))}")
    seeds = content["seeds"]
    if not all(isinstance(seed, int) for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"{path}: seeds={seeds}: expected distinct whole numbers")
    arms = {
        str(name): _stages(path, str(name), stages, content.get("shared") or {})
        for name, stages in _mapping(path, "arms", content["arms"]).items()
    }
    if len(arms) < 2:
        raise ConfigError(f"{path}: arms: expected at least two")
    return Study(
        path=path,
        text=text,
        **{key: " ".join(str(content[key]).split()) for key in _TEXTS},
        seeds=tuple(seeds),
        arms=arms,
        evaluation=_overrides(path, "evaluation", content["evaluation"]),
        k=int(content.get("k", 1)),
    )


def _stages(path: Path, arm: str, stages: Any, shared: Any) -> tuple[Stage, ...]:
    where = f"arms.{arm}"
    if not _NAME.fullmatch(arm):
        raise ConfigError(f"{path}: {where}: expected a name of letters, digits, _ and -")
    if not isinstance(stages, list) or not stages:
        raise ConfigError(
            f"{path}: {where}: expected a list of stages, such as '- grpo: [overrides]'"
        )
    read = []
    for number, stage in enumerate(stages):
        if not isinstance(stage, dict) or len(stage) != 1:
            raise ConfigError(f"{path}: {where}[{number}]: expected one recipe and its overrides")
        ((recipe, own),) = stage.items()
        common = _mapping(path, "shared", shared).get(recipe) or []
        overrides = _overrides(path, f"shared.{recipe}", common)
        overrides += _overrides(path, f"{where}[{number}].{recipe}", own or [])
        if number == 0 and any(PREVIOUS in override for override in overrides):
            raise ConfigError(f"{path}: {where}[0]: the first stage has no {PREVIOUS} stage")
        read.append(Stage(recipe=str(recipe), overrides=overrides))
    return tuple(read)


def _mapping(path: Path, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: {key}: expected a mapping")
    return value


def _overrides(path: Path, key: str, value: Any) -> tuple[str, ...]:
    taken = ("coding.run_dir=", "coding.seed=", "coding.evaluation.model=")
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{path}: {key}: expected a list of overrides, such as [key=value]")
    for override in value:
        if override.startswith(taken):
            raise ConfigError(
                f"{path}: {key}: remove {override.split('=')[0]}, which the study sets"
            )
    return tuple(value)


# ── members ────────────────────────────────────────────────────────────────────────────────────────
#
# <out>/study.yaml              the definition at the start of the first member
#       ARM/seed_N/STAGE_RECIPE a training run's folder, with a log of its output beside it
#       ARM/seed_N/evaluation   Phase 0 on the last stage's model

DEFINITION = "study.yaml"
_EVALUATION = "evaluation"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One arm with one seed."""

    arm: str
    seed: int
    folder: Path
    trainings: tuple[Path, ...]
    """One folder per stage."""

    @property
    def evaluation(self) -> Path:
        return self.folder / _EVALUATION

    @property
    def name(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def done(self) -> bool:
        return all(finished(path) for path in (*self.trainings, self.evaluation))


def finished(folder: Path) -> bool:
    """Return whether a run has finished."""
    return RunFolder(folder).state is State.finished


def members(study: Study, out: Path) -> Iterator[Member]:
    """Yield all members, seed by seed, so that a partial study is balanced over arms."""
    for seed in study.seeds:
        for arm, stages in study.arms.items():
            folder = out / arm / f"seed_{seed}"
            trainings = [folder / f"{n}_{stage.recipe}" for n, stage in enumerate(stages, 1)]
            yield Member(arm=arm, seed=seed, folder=folder, trainings=tuple(trainings))


def run(study: Study, out: Path, say: Say) -> None:
    """Run missing members. A failed member is reported, and the others still run.

    Raises:
        ConfigError: the definition has changed since the first member began.
        TrainingError: members failed; the same command resumes them.
        KeyboardInterrupt: the study was interrupted.
    """
    failed = []
    with sole_writer(out, "study"):
        keep_definition(study, out)
        os.environ.setdefault("WANDB_RUN_GROUP", study.name)
        for member in members(study, out):
            if member.done:
                say(f"{member.name}: has finished")
                continue
            try:
                _run_member(study, member, say)
            except TrainingError as error:
                failed.append(member.name)
                say(f"error: {member.name}: {error}")
    if failed:
        raise TrainingError(
            f"{len(failed)} members failed ({'; '.join(failed)}); the same command resumes them"
        )


def keep_definition(study: Study, out: Path) -> None:
    """Save the definition, or check that it has not changed since the study began.

    Raises:
        ConfigError: the definition has changed.
    """
    file = out / DEFINITION
    if file.exists() and file.read_text() != study.text:
        raise ConfigError(
            f"{study.path}: has changed since its runs in {out} began ({file} has the original); "
            "restore it, or define a study with another name"
        )
    if not file.exists():
        write_text(file, study.text)


def _run_member(study: Study, member: Member, say: Say) -> None:
    previous = ""
    seed = f"coding.seed={member.seed}"
    for stage, folder in zip(study.arms[member.arm], member.trainings, strict=True):
        overrides = [one.replace(PREVIOUS, previous) for one in stage.overrides]
        _run_recipe(member, stage.recipe, folder, [*overrides, seed], say)
        found = source(folder)
        model = found.model if found.is_merged else export(found, found.default_out, [], say)
        previous = str(model.absolute())
    evaluation = [*study.evaluation, f"coding.evaluation.model={previous}", seed]
    _run_recipe(member, "baseline", member.evaluation, evaluation, say)


def _run_recipe(
    member: Member, recipe: str, folder: Path, overrides: Sequence[str], say: Say
) -> None:
    """Run a recipe unless it has finished; raises as `running`."""
    if finished(folder):
        return
    again = bool(RunFolder(folder).attempts())
    say(f"{member.name}: {folder.name}{', resumed' if again else ''}")
    started = time.monotonic()
    log = folder.with_name(folder.name + ".log")
    command = [f"recipes.{recipe}", *overrides, f"coding.run_dir={folder}"]
    with running(command, log, name=folder.name):
        pass
    say(f"{member.name}: {folder.name} took {time.monotonic() - started:.0f} s")
