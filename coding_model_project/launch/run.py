"""The steps that all recipes share: composition, checks, the run's folder, exit codes.

Heavy imports happen after the checks, so a misspelt key or a missing file fails at once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs import schema
from coding_model_project.errors import INTERRUPTED, CodingModelError, ConfigError
from coding_model_project.isolation import processes
from coding_model_project.launch.checks import checks
from coding_model_project.launch.checks.machine_checks import choose_attention, joined_ray
from coding_model_project.launch.command_line import (
    Arguments,
    check_members,
    member_naming,
    parse,
    run_member,
)
from coding_model_project.launch.compose import (
    compose_recipe,
    config_dir,
    recorded_config,
    search_path,
    without_effect,
)
from coding_model_project.launch.device import default_hardware, log_into, prepare_environment
from coding_model_project.launch.sizing import needed_gb
from coding_model_project.redaction import redacted
from coding_model_project.runs.checkpoint_store import claim, open_store, prepare_resume
from coding_model_project.runs.checkpoints import step_of
from coding_model_project.runs.console import output_copied_to, quiet_requests
from coding_model_project.runs.folder import (
    RunFolder,
    State,
    refuse_unusable,
)
from coding_model_project.runs.lease import Heartbeat
from coding_model_project.runs.mirror import mirrored
from coding_model_project.runs.overview import write_summary
from coding_model_project.runs.provenance import command_line
from coding_model_project.runs.resuming import (
    Inputs,
    inputs_of,
    refuse_changes,
    refuse_other_inputs,
    with_local_inputs,
)
from coding_model_project.runs.starting import StopSignal, end_attempt, start_attempt
from coding_model_project.storage.object_store import is_url
from coding_model_project.synthetic import prepare

if TYPE_CHECKING:
    from coding_model_project.launch.recipe import CarryOut, Recipe


def main(name: str, carry_out: CarryOut) -> None:
    """Run a recipe as a program; see `recipe.run_main`."""
    argv, command = sys.argv[1:], command_line()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until StopSignal takes over
    debug = "--debug" in argv
    if not debug:
        quiet_requests()
    with _one_line_errors(debug):
        arguments = parse(argv)
        if arguments.recorded is not None:
            path = Path(arguments.recorded)  # RUN/config.yaml, to repeat RUN in a new folder
            run_dir = arguments.value("coding.run_dir") or "outputs/rerun"
            refuse_unusable("coding.run_dir", run_dir)
            config = recorded_config(path, run_dir)
            checks.check_values(config)
            carry_out(config, command, RunFolder(path.parent))
            return
        ours = _before_hydra(name, arguments)

    def task(config: DictConfig) -> None:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            return run_member(name)
        with _one_line_errors(debug):  # inside Hydra's own error printing
            if arguments.elsewhere:  # otherwise _before_hydra has checked them
                checks.check_values(config)
            carry_out(config, command, None)
        return None

    # Overrides first: Hydra does not accept them on both sides of a flag.
    sys.argv = [f"recipes.{name}", *ours, *arguments.overrides, *arguments.hydra]
    with _one_line_errors(debug):
        hydra.main(version_base=None, config_path=str(config_dir(name)), config_name=name)(task)()


def _before_hydra(name: str, arguments: Arguments) -> list[str]:
    """Check the command line before Hydra makes the run's folder.

    Returns:
        The overrides that this package adds.

    Raises:
        ConfigError: a key is wrong; the message names it.
    """
    schema.register()
    ours = [search_path(name), *_hardware(arguments)]
    if arguments.sweeps:
        check_members(name, arguments.overrides, ours)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # have Hydra re-raise a member's error unchanged
        return [*ours, *member_naming(arguments.overrides)]
    if not arguments.elsewhere:
        config = compose_recipe(name, [*arguments.overrides, *ours])
        if not arguments.shows:
            checks.check_values(config)
            refuse_unusable("coding.run_dir", config.coding.run_dir)
            for _, line, _ in without_effect(name, [*arguments.overrides, *ours], config):
                print(line)
    return ours


def carry_out(
    recipe: Recipe,
    config: DictConfig,
    command: list[str] | None = None,
    repeats: RunFolder | None = None,
) -> None:
    """Check the configuration, prepare missing files, and train, recorded in the run's folder.

    Args:
        command: the command that started this process; None inside another program. If given, the
            process's output is copied to the log, and SIGTERM ends it after a checkpoint.
        repeats: the run to repeat, with its own data and model.

    Raises:
        ConfigError: a check failed, before any training.
        UngradableError: the infrastructure failed.
        KeyboardInterrupt: the run received a stop signal.
    """
    checks.check_memory(needed_gb(config, longest=0))
    make_absolute(config)
    if line := choose_attention(config, recipe.model_key.removesuffix(".path")):
        print(line)
    recorded, config = config, with_local_inputs(config, recipe.model_key)
    checks.check(config, recipe.model_key, recipe.make_data, prepared=False)
    if config.coding.dataset is not None and not Path(config.coding.data_dir).exists():
        refuse_unusable("coding.data_dir", config.coding.data_dir)
    prepare.prepare(config.coding, OmegaConf.select(config, recipe.model_key), say=_say)
    checks.check(config, recipe.model_key, recipe.make_data)
    inputs = inputs_of(config, recipe.model_key)
    if repeats is not None:
        refuse_other_inputs(repeats, inputs)
    run = RunFolder(Path(config.coding.run_dir))
    with mirrored(recorded, run.path, print) as start_mirror:
        if run.attempts() and run.state is State.finished and not config.coding.force:
            refuse_changes(run, recorded, inputs)
            start_mirror()
            print(f"{run.path} has finished; for another run set coding.run_dir to a new folder")
            return
        with _attempt(recipe, recorded, inputs, command) as log_dir:
            start_mirror()
            _prepare_resume(config, recorded, inputs)
            prepare_environment(config.trainer.device, alone=joined_ray(config) is None)
            log_into(Path(config.coding.run_dir))
            processes.start_sentinel()
            with StopSignal(log_dir, listen=command is not None):
                recipe.train(config)
    if command is not None:
        steps = json.loads(run.summary.read_text())["steps"]
        report = shlex.join(["python", "-m", "coding_model_project", "report", os.fspath(run.path)])
        print(f"finished: {run.path} after {steps} steps; next: {report}")


def _prepare_resume(config: DictConfig, recorded: DictConfig, inputs: Inputs) -> None:
    """Fetch checkpoints from the store, and leave only complete ones for verl to resume from.

    Args:
        recorded: the configuration as the run records it, with URLs of inputs.

    Raises:
        ConfigError: the store cannot be used, or has checkpoints of another run, or some that the run
            does not resume from; its own lower steps would be deleted there.
        CheckpointError: the store does not answer.
    """
    trainer = config.trainer
    if (store := open_store(config, print)) is not None:
        store.check_writable()
        if trainer.resume_mode != "auto" and (steps := store.steps()):
            raise ConfigError(
                f"coding.checkpoints.url={store.url}: has checkpoints up to global_step_{steps[0]}, "
                f"which trainer.resume_mode={trainer.resume_mode} does not resume from; set another "
                "URL, or trainer.resume_mode=auto"
            )
        folder = Path(trainer.default_local_dir)
        claim(store, recorded, inputs, folder, force=config.coding.force)
    if trainer.resume_mode != "auto":
        return
    keep = trainer.get("max_actor_ckpt_to_keep") or trainer.get("max_ckpt_to_keep")
    found = prepare_resume(Path(trainer.default_local_dir), store, print, keep)
    if found is not None:
        print(f"resuming {config.coding.run_dir} from step {step_of(found)}")


@contextlib.contextmanager
def _attempt(
    recipe: Recipe, config: DictConfig, inputs: Inputs, command: list[str] | None
) -> Iterator[Path]:
    """Record an attempt and its ending in the run's folder; yield the attempt's log folder."""
    run = RunFolder(Path(config.coding.run_dir))
    attempt = start_attempt(
        run.path,
        config,
        inputs=inputs,
        recipe=recipe.name,
        command=command or [],
        force=config.coding.force,
        say=_say,
    )
    log_dir = run.log_dir(attempt.number)
    copied = output_copied_to(log_dir / "console.log") if command else contextlib.nullcontext()
    try:
        with copied, Heartbeat(log_dir):
            yield log_dir
        write_summary(run)
    except BaseException as error:
        end_attempt(run.path, attempt, error)
        raise
    end_attempt(run.path, attempt)


_say = functools.partial(print, flush=True)
"""Prints a line at once: in a log, it comes before the errors that follow it."""


@contextlib.contextmanager
def _one_line_errors(debug: bool) -> Iterator[None]:
    """Turn errors into one line and an exit code; with --debug, keep the traceback."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except CodingModelError as error:
        if debug:
            raise
        for line in str(error).split("\n"):  # one for each refused key
            print(f"error: {line}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except OSError as error:  # such as a full disk or a read-only folder
        if debug:
            traceback.print_exc()
        print(f"error: {redacted(str(error))}", file=sys.stderr)
        raise SystemExit(CodingModelError.exit_code) from None


def _hardware(arguments: Arguments) -> list[str]:
    if arguments.value("hardware") is not None:
        return []
    chosen = default_hardware()
    if not arguments.shows:  # programs parse what such a flag prints
        why = "no accelerator found" if chosen == "cpu" else "accelerator found"
        print(f"hardware={chosen} ({why}; choose another with hardware=cpu|gpu_1x|gpu_8x)")
    return [f"hardware={chosen}"]


def make_absolute(config: DictConfig) -> None:
    """Make the paths under `coding:` absolute: Ray's workers run in other folders."""
    for key in ("run_dir", "data_dir"):
        config.coding[key] = _absolute(config.coding[key])
    config.coding.problems = [_absolute(path) for path in config.coding.problems]


def _absolute(path: str) -> str:
    return path if is_url(path) else os.fspath(Path(path).expanduser().absolute())
