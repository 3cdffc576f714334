"""Runner of verl's PPO/GRPO trainer from a composed configuration."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import coding_of
from coding_model_project.errors import ConfigError, TrainingError
from coding_model_project.grading.judge import check_service
from coding_model_project.launch.checks.checks import check_grpo
from coding_model_project.launch.checks.episode_checks import has_agent, has_bash, has_episodes
from coding_model_project.launch.checks.machine_checks import check_head, joined_ray
from coding_model_project.launch.device import log_into
from coding_model_project.runs.folder import FATAL, RunFolder, full_disk
from coding_model_project.verl_ext.cluster import forkserver, membership, session
from coding_model_project.verl_ext.cluster.nodes import Node, cause_of, own_node_id, pinned
from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin

LOOPS = Path(__file__).parents[1] / "loops" / "agent_loops.yaml"


def plain(config: DictConfig) -> DictConfig:
    """Return the configuration as plain containers with enums as their values, which Ray can send."""
    container = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    assert isinstance(container, dict)
    return OmegaConf.create(container)


def train(config: DictConfig) -> None:
    """Train until `ppo_trainer.total_training_steps`, resuming from the last checkpoint if there is one.

    Raises:
        ConfigError: batch sizes are invalid or the machine is too small, before Ray starts; or verl
            rejects the configuration.
        SandboxError: the judging service does not answer, before Ray starts.
        ClusterError: the Ray to join does not answer, or its nodes are too few or do not answer.
        TrainingError: a worker died, a weight sync failed, or the judge does not work.
    """
    # Forked workers need a session that this process starts, on this host alone. With an accelerator
    # there are none: the imports may touch the device, which has not been tested.
    ours = not joined_ray(config) and not session.in_session()
    forks = config.trainer.device == "cpu" and ours
    with forkserver.running() if forks else nullcontext() as python:
        check_grpo(config)
        check_service(coding_of(config).sandbox)
        if not session.in_session():
            check_head(config)
        _train(plain(config), python)


def _choose_loop(config: DictConfig) -> None:
    """Select one of this package's agent loops if samples are episodes."""
    kinds = {"repair": has_episodes, "agent": has_agent, "bash": has_bash}
    loop = next((name for name, chosen in kinds.items() if chosen(config)), None)
    if loop is not None:
        agent = config.actor_rollout_ref.rollout.agent
        agent.default_agent_loop = loop
        agent.agent_loop_config_path = str(LOOPS)


def _train(config: DictConfig, python: str | None) -> None:
    """Train in a Ray session.

    Args:
        config: result of `plain`.
        python: command that runs workers; None for this interpreter. With forked workers this process
            never imports verl: Ray starts while the server imports it, and a first worker does the rest.
    """
    _choose_loop(config)
    ours = not session.in_session()
    if python is None:
        _check_by_verl(config)
        if ours:
            session.start_ray(config)
    else:
        session.start_for_forks(config, python)

    import ray

    try:
        if python is None:
            joins = ours and joined_ray(config)
            # Errors are explained inside: on leaving, all processes of the run on other nodes end.
            with (
                membership.in_cluster(config) if joins else nullcontext(()) as nodes,
                _explained(config, nodes),
            ):
                # After the nodes, whose check names those without GPUs at once.
                membership.check_capacity(config, alone=ours and not joins)
                _run_trainer(config)
        else:
            membership.check_capacity(config, alone=True)
            with _explained(config, ()):
                in_worker: Any = ray.remote(num_cpus=0, max_retries=0)(_check_and_run)
                ray.get(in_worker.remote(config))
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _explained(config: DictConfig, nodes: Sequence[Node]) -> Iterator[None]:
    """Turn an error of Ray into one line with its cause, and the nodes or disks behind it.

    Args:
        nodes: nodes of the joined Ray; empty for a Ray that this process started.

    Raises:
        ConfigError, TrainingError: as `train`.
    """
    from ray.exceptions import RayActorError, RayError

    run = RunFolder(Path(config.coding.run_dir))
    fatal = run.log_dir(run.last_number) / FATAL
    try:
        yield
    except RayError as error:
        # The frames hold the run's actors, which would stay alive.
        traceback.clear_frames(error.__traceback__)
        cause = getattr(error, "cause", None)
        if isinstance(cause, ConfigError):
            raise ConfigError(str(cause)) from error
        remarks = membership.lost(nodes, config) or full_disk(run.path) or membership.full_disks()
        if not remarks and isinstance(error, RayActorError):
            remarks = "; the same command resumes the run"
        raise TrainingError(_reason(fatal, error) + remarks) from error


def _check_and_run(config: DictConfig) -> None:
    """Do the part of `_train` that runs in a worker of its session."""
    _check_by_verl(config)
    _run_trainer(config, {"env_vars": session.environment(config)["env_vars"]})


def _check_by_verl(config: DictConfig) -> None:
    """Validate the configuration with verl.

    Raises:
        ConfigError: verl rejects it, or lacks the CPU platform.
    """
    check_cpu_plugin()
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

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


def _run_trainer(config: DictConfig, environment: Mapping[str, Any] | None = None) -> None:
    """Run verl's trainer to its end in this process's session.

    Args:
        environment: Ray's runtime environment of the trainer and its actors; None for the session's.
    """
    import ray
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo

    from coding_model_project.verl_ext.cluster import worker_setup

    runner: Any = TaskRunnerV1
    plain_runner = runner.__ray_metadata__.modified_class  # the class under @ray.remote

    class CodingTaskRunner(plain_runner):
        def run(self, config: DictConfig) -> None:
            # Registers the trainer that `ppo_trainer.v1.trainer_mode=coding_sync` names.
            from coding_model_project.verl_ext.rewards.placement import place_judges
            from coding_model_project.verl_ext.trainers import ppo_trainer  # noqa: F401
            from coding_model_project.verl_ext.trainers.loggers import prepare_loggers

            # Ray's workers have the environment of its first start, possibly of another run.
            log_into(Path(config.coding.run_dir))
            prepare_loggers(config)
            place_judges()
            super().run(config)

    remote: Any = ray.remote(CodingTaskRunner)
    # Metrics, the stop file and checkpoints are on the disk of the node that starts the run.
    options = {**pinned(own_node_id()), "num_cpus": 0}  # a head may have none
    # Also in a session that another caller has started.
    options["runtime_env"] = environment or {"env_vars": worker_setup.variables()}
    run_ppo(config, remote.options(**options))


def _reason(fatal: Path, error: Any) -> str:
    """Return in one line why the run ended: the trainer's own reason, else the error's cause."""
    if fatal.exists():
        return fatal.read_text().strip()
    return re.sub(r"^coding_model_project\.errors\.\w+: ", "", cause_of(error))
