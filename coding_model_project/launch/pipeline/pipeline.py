"""The phases; each consists of a few commands that a user could run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.evaluation.results import COMPLETIONS, RESULTS
from coding_model_project.evaluation.watch.found import find
from coding_model_project.isolation.processes import start_sentinel
from coding_model_project.launch import steps
from coding_model_project.launch.checks.checks import check_values
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.launch.pipeline import outcome
from coding_model_project.launch.run import make_absolute
from coding_model_project.launch.steps import Done, Phase, carry_out
from coding_model_project.runs.folder import sole_writer
from coding_model_project.synthetic.prepare import prepare

PHASES = ("baseline", "sft", "sft_continued", "dpo", "grpo", "repair")
_CONTROL = "sft_continued"
"""As many steps of SFT again, to compare the next phase with; no phase starts from it."""
_MODEL_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
_SUPERVISED, _POLICY = "model.path", "actor_rollout_ref.model.path"
_RECIPES = {
    "sft": (_SUPERVISED, "train/loss"),
    "dpo": (_SUPERVISED, "dpo/accuracy"),
    "grpo": (_POLICY, "judge/accepted"),
    "repair": (_POLICY, "judge/accepted"),
}
"""verl's key of each training's starting model, and the metric beside its progress bar."""


def main(config: DictConfig) -> None:
    """Run the phases, and print and write their results.

    Raises:
        ConfigError: a key is wrong, or a file of an earlier step has changed.
        TrainingError: a command failed; running the same command again resumes there.
        KeyboardInterrupt: a command was interrupted.
        SystemExit: exit code 1; a phase of `must_gain` is not clearly better than the one before.
    """
    make_absolute(config)
    chosen = HydraConfig.get()
    settings = PipelineSettings.of(
        config, chosen.overrides.task, chosen.runtime.choices["hardware"]
    )
    _check_phases(settings)
    prepare(config.coding, settings.model, say=print)
    start_sentinel()
    with sole_writer(settings.root, "pipeline"):
        phases: list[Phase] = []
        model = settings.model
        for name in settings.phases:
            steps.console.rule(f"[bold]{name}")
            phases.append(_run_phase(Work(settings, name, model)))
            model = model if name == _CONTROL else phases[-1].model
        rows = outcome.write(settings.root, phases)
    link = settings.root / "model"  # relative, so that the folder can be moved
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(model, link.parent), target_is_directory=True)
    if missed := outcome.without_gain(rows, settings.tree["must_gain"]):
        steps.console.print(f"must_gain: no clear gain of {', '.join(missed)}")
        raise SystemExit(1)


def recipe_of(phase: str) -> str:
    """Return the recipe that a phase trains by."""
    return "sft" if phase == _CONTROL else phase


def _check_phases(settings: PipelineSettings) -> None:
    """Compose and check every phase's recipe, so that the last one does not fail after an hour.

    Raises:
        ConfigError: a key is wrong; the message names it and the phase.
    """
    tree = settings.tree
    for about in ("evaluation", "sampling"):
        overrides = [f"coding.evaluation.model={settings.model}", *tree[about]["overrides"]]
        _check(about, "baseline", [*settings.common, *overrides])
    for phase in settings.phases:
        if phase != "baseline":
            recipe = recipe_of(phase)
            model = f"{_RECIPES[recipe][0]}={settings.model}"
            n_steps = f"trainer.total_training_steps={tree[phase]['steps']}"
            rounds = [f"coding.repair.rounds={tree[phase]['rounds']}"] if phase == "repair" else []
            overrides = [model, n_steps, *rounds, *tree[phase]["overrides"]]
            _check(phase, recipe, [*settings.common, *overrides])


def _check(phase: str, recipe: str, overrides: list[str]) -> None:
    try:
        check_values(compose_recipe(recipe, overrides))
    except ConfigError as error:
        raise ConfigError(f"{phase}.overrides: {error}") from error


class Work:
    """A phase in progress: the steps so far, from its starting model."""

    def __init__(self, settings: PipelineSettings, phase: str, model: str) -> None:
        self.settings = settings
        self.phase = phase
        self.start = model
        self.done: list[Done] = []

    def evaluate(self, verb: str, model: str, about: str, *overrides: str) -> Path:
        """Sample a model on problems, and judge the samples.

        Args:
            about: "evaluation" for the held-out problems, "sampling" for the training problems.

        Returns:
            The evaluation's folder.
        """
        tree = self.settings.tree
        limit = tree[about]["limit"]
        data = tree["data"]["test" if about == "evaluation" else "train"]
        command = [
            "recipes.baseline",
            *self.settings.common,
            f"coding.evaluation.model={model}",
            f"coding.evaluation.datasets=['{data}']",
            f"coding.evaluation.n={tree[about]['n']}",
            f"coding.evaluation.limit={'null' if limit is None else limit}",
            *tree[about]["overrides"],
            *overrides,
        ]
        reads = (*_model_files(model), self.settings.problems)

        def make(folder: Path) -> list[Path]:
            steps.run([*command, f"coding.run_dir={folder}"])
            return [folder / COMPLETIONS, folder / RESULTS]

        return Path(self._do(verb, command, reads, make).folder)

    def data(self, what: str, evaluation: Path, *options: str) -> tuple[Path, ...]:
        """Make files of training rows by `data WHAT` from an evaluation's samples."""
        command = ["coding_model_project", "data", what, str(evaluation)]
        command += ["--problems", str(self.settings.problems), *options]
        reads = (evaluation / COMPLETIONS, evaluation / RESULTS, self.settings.problems)

        def make(folder: Path) -> list[Path]:
            folder.mkdir(parents=True, exist_ok=True)
            out = folder / f"{what}.parquet"
            steps.run([*command, "--out", str(out)])
            return sorted(folder.glob("*.parquet"))

        return self._do(what, command, reads, make).files()

    def train(self, *overrides: str, rows: Sequence[Path] = (), val: Sequence[Path] = ()) -> str:
        """Run the phase's recipe.

        Args:
            rows: training files that replace the recipe's own.
            val: validation files that replace the recipe's own.

        Returns:
            The folder of the trained model.
        """
        own, recipe = self.settings.tree[self.phase], recipe_of(self.phase)
        model_key, shown = _RECIPES[recipe]
        given = {"data.train_files": rows, "data.val_files": val}
        files = [f"{key}=[{','.join(map(str, paths))}]" for key, paths in given.items() if paths]
        command = [
            f"recipes.{recipe}",
            *self.settings.common,
            f"{model_key}={self.start}",
            *files,
            f"trainer.total_training_steps={own['steps']}",
            *overrides,
            *own["overrides"],
        ]
        reads = (*_model_files(self.start), *rows, *val, self.settings.problems)

        def make(folder: Path) -> list[Path]:
            steps.train(command, folder.absolute(), steps=own["steps"], shown=shown)
            checkpoints = find([str(folder)])
            if not checkpoints or not checkpoints[-1].is_merged:
                raise TrainingError(f"{folder}: {self.phase} left no model; see {folder}/log.txt")
            return list(_model_files(str(checkpoints[-1].model)))

        return str(self._do("train", command, reads, make).files()[0].parent)

    def ended(self, model: str, rounds: Path | None = None) -> Phase:
        """Evaluate the phase's model, and return the phase."""
        evaluation = self.evaluate("evaluation", model, "evaluation")
        done = tuple(self.done)
        return Phase(name=self.phase, model=model, steps=done, evaluation=evaluation, rounds=rounds)

    def _do(
        self,
        verb: str,
        command: Sequence[str],
        reads: Sequence[Path],
        make: Callable[[Path], Sequence[Path]],
    ) -> Done:
        name = f"{self.phase}/{verb}"
        self.done.append(carry_out(self.settings.root, name, command, reads, make))
        return self.done[-1]


def _model_files(model: str) -> tuple[Path, ...]:
    """Return the files of a model's folder; none for a hub name."""
    folder = Path(model)
    return tuple(sorted(path for form in _MODEL_FILES for path in folder.glob(form)))


def _run_phase(work: Work) -> Phase:
    """Train and evaluate the phase's model."""
    own = work.settings.tree.get(work.phase, {})
    match recipe_of(work.phase):
        case "baseline":
            return work.ended(work.start)
        case "sft":  # on the set's demonstrations and, with `sft.samples`, the model's own programs
            own = work.settings.tree["sft"]
            rows = [Path(own["demonstrations"])] if own["demonstrations"] else []
            if own["samples"]:
                samples = work.evaluate("samples", work.start, "sampling")
                rows += work.data("sft-rows", samples)
                if "repair" in work.settings.phases:
                    rows += work.data("repair-traces", samples)
            return work.ended(work.train(rows=rows))
        case "dpo":
            samples = work.evaluate("samples", work.start, "sampling")
            pairs, val = work.data("pairs", samples)  # in the order of their names
            return work.ended(work.train(rows=[pairs], val=[val]))
        case "repair":
            n_rounds = own["rounds"]
            model = work.train(f"coding.repair.rounds={n_rounds}")
            with_rounds = [f"coding.evaluation.repair_rounds={n_rounds}", *own["evaluation"]]
            return work.ended(model, work.evaluate("rounds", model, "evaluation", *with_rounds))
        case _:
            return work.ended(work.train())


# ── settings ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """The settings of the phases."""

    root: Path
    phases: tuple[str, ...]
    model: str
    problems: Path
    """The file of the training problems."""
    common: tuple[str, ...]
    """Overrides for every recipe: hardware, and the user's overrides under `coding:`."""
    tree: Any
    """All keys, resolved."""

    @classmethod
    def of(cls, config: DictConfig, overrides: Sequence[str], hardware: str) -> PipelineSettings:
        """Read and check the settings.

        Args:
            overrides: from the command line.

        Raises:
            ConfigError: a phase is unknown, or the phases are not in order.
        """
        phases = tuple(config.phases)
        unknown = [phase for phase in phases if phase not in PHASES]
        if unknown:
            raise ConfigError(f"phases={unknown[0]}: choose from {', '.join(PHASES)}")
        if list(phases) != sorted(set(phases), key=PHASES.index) or "baseline" not in phases:
            raise ConfigError(
                f"phases=[{','.join(phases)}]: list each once, in this order, starting with baseline: "
                f"{', '.join(PHASES)}"
            )
        ours = [word for word in overrides if word.lstrip("+~").startswith("coding.")]
        folders = ("coding.run_dir", "coding.data_dir")
        passed_on = [word for word in ours if not word.startswith(folders)]
        data_dir = Path(config.coding.data_dir).absolute()
        return cls(
            root=Path(config.coding.run_dir),
            phases=phases,
            model=config.base_model,
            problems=Path(config.coding.problems[0]).absolute(),
            common=(f"hardware={hardware}", f"coding.data_dir={data_dir}", *passed_on),
            tree=OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        )
