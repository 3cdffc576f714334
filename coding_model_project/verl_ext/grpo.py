"""Runs verl's PPO/GRPO trainer from a composed configuration."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import traceback
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.grading.judge import check_service
from coding_model_project.runs.folder import FATAL, RunFolder, full_disk
from coding_model_project.verl_ext import bash_config, forkserver, repair_config
from coding_model_project.verl_ext.checks import check_grpo
from coding_model_project.verl_ext.platform import check_cpu_plugin, log_into


def plain(config: DictConfig) -> DictConfig:
    """The configuration as plain containers, enums as their values: what Ray can carry everywhere."""
    container = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(container, dict)
    return OmegaConf.create(container)


def train(config: DictConfig) -> None:
    """Train until `trainer.total_training_steps`, resuming from the last checkpoint if there is one.

    Raises:
        ConfigError: batches that do not work out, or verl refuses the configuration; before Ray starts.
        SandboxError: the service that is to judge is not there; before Ray starts.
        TrainingError: a worker died, a weight sync failed, or the judge is out of order.
    """
    check_grpo(config)
    check_service(plain(config).coding.sandbox)
    with forkserver.running() if _forks_workers(config) else contextlib.nullcontext() as python:
        _train(config, python)


def _forks_workers(config: DictConfig) -> bool:
    """Whether all workers will be of a session that is started here, on this host alone.

    Not with an accelerator: what is imported may touch the device, which was not tried.
    """
    import ray

    elsewhere = config.ray_kwargs.ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    return config.trainer.device == "cpu" and not elsewhere and not ray.is_initialized()


def _train(config: DictConfig, python: str | None) -> None:
    import ray

    check_cpu_plugin()
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from ray.exceptions import RayError
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    config = plain(config)
    repair_config.install(config)
    bash_config.install(config)
    try:
        validate_config(
            config=config,
            use_reference_policy=need_reference_policy(config),
            use_critic=need_critic(config),
        )
    except (AssertionError, ValueError, TypeError, HydraException, OmegaConfBaseException) as error:
        raise ConfigError(
            f"verl refuses the configuration: {' '.join(str(error).split())}"
        ) from error

    runner: Any = TaskRunnerV1
    plain_runner = runner.__ray_metadata__.modified_class  # the class under @ray.remote

    class CodingTaskRunner(plain_runner):
        def run(self, config: DictConfig) -> None:
            # Registers the trainer that `trainer.v1.trainer_mode=coding_sync` names.
            from coding_model_project.verl_ext import trainer  # noqa: F401
            from coding_model_project.verl_ext.loggers import prepare_loggers

            # Ray's workers have the environment of its first start, maybe another run's.
            log_into(Path(config.coding.run_dir))
            prepare_loggers(config)
            super().run(config)

    run = RunFolder(Path(config.coding.run_dir))
    fatal = run.log_dir(len(run.attempts())) / FATAL
    joined = ray.is_initialized()  # a session that somebody else started, and ends
    if not joined:
        start_ray(config, python)
    try:
        run_ppo(config, task_runner_class=ray.remote(CodingTaskRunner))
    except RayError as error:
        traceback.clear_frames(error.__traceback__)  # they hold the run's actors, which would stay
        raise TrainingError(_reason(fatal, error) + full_disk(run.path)) from error
    finally:
        if not joined:
            ray.shutdown()


def start_ray(config: DictConfig, python: str | None = None) -> None:
    """Start or join Ray as verl would, but keep this process's own answer to SIGTERM: Ray sets its own.

    Args:
        config: as `plain` gives it.
        python: what workers are run with (`forkserver.running`); None for this interpreter.
    """
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    rollout = config.actor_rollout_ref.rollout
    if rollout.full_determinism:  # must be known before Ray starts its workers
        os.environ["VERL_FULL_DETERMINISM"] = "1"
        os.environ["PYTHONHASHSEED"] = str(rollout.seed)
    environment = OmegaConf.create(get_ppo_ray_runtime_env(config))
    environment.setdefault("env_vars", {})["TRANSFER_QUEUE_ENABLE"] = "1"
    options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
    environment = OmegaConf.merge(environment, options.get("runtime_env") or {})
    if OmegaConf.select(environment, "py_executable") is None:
        environment.py_executable = python
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(**options | {"runtime_env": OmegaConf.to_container(environment)})
    signal.signal(signal.SIGTERM, handler)


def _reason(fatal: Path, error: Any) -> str:
    """One line for what ended the run: what stopped it from within, else the error's last line."""
    if fatal.exists():
        return fatal.read_text().strip()
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    return re.sub(r"^coding_model_project\.errors\.\w+: ", "", last)
