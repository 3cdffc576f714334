"""Training and evaluation of a study's missing members, one by one.

<out>/study.yaml              the definition at the start of the first member
      ARM/seed_N/STAGE_RECIPE a training run's folder, with a log of its output beside it
      ARM/seed_N/evaluation   Phase 0 on the last stage's model
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.handover.export import export, source
from coding_model_project.launch.steps import running
from coding_model_project.runs.folder import RunFolder, State, sole_writer
from coding_model_project.studies.definition import PREVIOUS, Study

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
        previous = str(_model(folder, say).absolute())
    evaluation = [*study.evaluation, f"coding.evaluation.model={previous}", seed]
    _run_recipe(member, "baseline", member.evaluation, evaluation, say)


def _model(folder: Path, say: Say) -> Path:
    """Return the path of a training run's model, exporting it if needed."""
    found = source(folder)
    return found.model if found.is_merged else export(found, found.default_out, [], say)


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
