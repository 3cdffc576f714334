"""Runs verl's PPO/GRPO trainer from a composed configuration."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ConfigError, UngradableError
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
        UngradableError: a worker died, a weight sync failed, or the judge is out of order.
    """
    check_grpo(config)
    check_cpu_plugin()
    import ray
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from ray.exceptions import RayError
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    config = plain(config)
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
            from coding_model_project.verl_ext.metrics_file import append_metrics

            # Ray's workers have the environment of its first start, maybe another run's.
            log_into(Path(config.coding.run_dir))
            append_metrics()
            super().run(config)

    fatal = Path(config.coding.run_dir) / "fatal.txt"
    fatal.unlink(missing_ok=True)
    joined = ray.is_initialized()  # a session that somebody else started, and ends
    try:
        run_ppo(config, task_runner_class=ray.remote(CodingTaskRunner))
    except RayError as error:
        traceback.clear_frames(error.__traceback__)  # they hold the run's actors, which would stay
        raise UngradableError(_reason(fatal, error)) from error
    finally:
        if not joined:
            ray.shutdown()


def _reason(fatal: Path, error: Any) -> str:
    """One line for what ended the run: what stopped it from within, else the error's last line."""
    if fatal.exists():
        return fatal.read_text().strip()
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
