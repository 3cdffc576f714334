"""Ray sessions: of a run, started or joined, with its workers' environment; of a command, joined."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.isolation.processes import TOKEN, own_temporary_files
from coding_model_project.launch.checks.machine_checks import (
    check_address,
    check_answers,
    joined_ray,
)
from coding_model_project.launch.device import environment_of

ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable with the head's address; an option overrides it."""
_SIZES = ("num_cpus", "num_gpus", "object_store_memory", "resources", "labels", "include_dashboard")
"""Options of `ray.init` for a session that it starts; it rejects them for one that it joins."""
_OF_A_RUN = (TOKEN, "TORCHINDUCTOR_CACHE_DIR", "HF_HUB_OFFLINE", "WANDB_MODE")
"""Environment variables of this process that workers on other nodes need; none holds a secret."""


def in_session() -> bool:
    """Return whether this process is in a Ray session that another caller started and ends."""
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


def start_ray(config: DictConfig, python: str | None = None) -> None:
    """Start or join Ray as verl would.

    Args:
        config: result of `grpo.plain`.
        python: command that runs workers (`forkserver.running`); None for this interpreter.

    Raises:
        ClusterError: the session to join refuses this process.
    """
    _init_ray(config, _with_python(environment(config), python))


def start_for_forks(config: DictConfig, python: str) -> None:
    """Start Ray before verl is imported. The first worker sets the other workers' environment."""
    _set_determinism(config)
    _init_ray(config, _with_python(_user_environment(config), python))


def environment(config: DictConfig) -> dict[str, Any]:
    """Return verl's runtime environment of Ray's workers, with the user's overrides."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    from coding_model_project.verl_ext.cluster import worker_setup

    _set_determinism(config)  # which verl passes on
    theirs = OmegaConf.create(get_ppo_ray_runtime_env(config))
    variables = theirs.setdefault("env_vars", {})
    variables["TRANSFER_QUEUE_ENABLE"] = "1"
    variables.update(worker_setup.variables())
    if joined_ray(config):
        variables.update(_variables_of_this_process(config.trainer.device))
    merged = OmegaConf.merge(theirs, _user_environment(config))
    return cast("dict[str, Any]", OmegaConf.to_container(merged))


def _variables_of_this_process(device: str) -> dict[str, str]:
    """Return the variables for workers of a joined Ray, which inherit those of `ray start` instead."""
    names = (*environment_of(device), *_OF_A_RUN)
    found = {name: os.environ[name] for name in names if name in os.environ}
    _, folder = own_temporary_files()  # `membership` creates it on each node
    return found | ({"TMPDIR": folder} if folder else {})


def _with_python(environment: Mapping[str, Any], python: str | None) -> dict[str, Any]:
    """Return the environment with `python` as its `py_executable`, unless it has one."""
    return {**environment, "py_executable": environment.get("py_executable") or python}


def _user_environment(config: DictConfig) -> dict[str, Any]:
    options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
    return options.get("runtime_env") or {}


def _set_determinism(config: DictConfig) -> None:
    """Set the variables of `full_determinism`, which Ray's workers inherit."""
    rollout = config.actor_rollout_ref.rollout
    if rollout.full_determinism:
        os.environ["VERL_FULL_DETERMINISM"] = "1"
        os.environ["PYTHONHASHSEED"] = str(rollout.seed)


def _init_ray(config: DictConfig, environment: Mapping[str, Any]) -> None:
    options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
    options["runtime_env"] = dict(environment)
    address = joined_ray(config)
    options["address"] = address or "local"  # else Ray reads the record that `joined_ray` refuses
    if address is not None:
        options = {name: value for name, value in options.items() if name not in _SIZES}
    init_ray(options, joins=address, name=f"Ray at {address}")


def init_ray(options: Mapping[str, Any], *, joins: str | None, name: str) -> None:
    """Call `ray.init`, and restore this process's SIGTERM handler, which Ray replaces.

    Args:
        joins: HOST:PORT of the head that `options` join; None if they start a Ray.
        name: name of the Ray in errors.

    Raises:
        ClusterError: the head refuses this process, or this machine is not one of its nodes.
    """
    import ray
    from ray.exceptions import RayError

    if joins is not None:
        # Inside a Ray job, the job's own variables are kept beside those of `options`.
        os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except (RayError, RuntimeError, ValueError, OSError) as error:
        if joins is None:
            raise
        ray.shutdown()
        raise ClusterError(f"{name}: {_refusal(joins, error)}") from error
    finally:
        signal.signal(signal.SIGTERM, handler)
    with contextlib.suppress(OSError):  # Ray writes it as the umask says, usually for all to read
        Path("~/.ray/auth_token").expanduser().chmod(0o600)


def _refusal(address: str, error: Exception) -> str:
    """Return one line with the reason why Ray cannot be joined, and the fix."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "ersion mismatch" in text:
        return f"this node's versions differ from the head's: {text}"
    if any("AuthenticationError" in f"{type(one).__name__} {one}" for one in _chain(error)) or (
        "oken" in text and "uth" in text
    ):
        return (
            "the head refuses this process's token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or "
            "~/.ray/auth_token) to the head's (`ray get-auth-token` there)"
        )
    return (
        f"this machine cannot join ({text[:300]}); run `ray start --address={address}` on it first"
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes: Ray's last error does not name the reason."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# ── a command that joins a cluster ────────────────────────────────────────────────────────────────


def head_address(given: str | None) -> str:
    """Return the head's HOST:PORT, as given or from `RAY_ADDRESS`.

    Raises:
        ConfigError: there is no address, or it is malformed.
    """
    name, address = ("--ray-address", given) if given else (ADDRESS, os.environ.get(ADDRESS, ""))
    if not address:
        raise ConfigError(
            "--cluster=ray: the cluster's address is missing; pass --ray-address HOST:PORT "
            f"(coding.evaluation.ray_address) or set {ADDRESS}; `ray start --head` prints it"
        )
    check_address(address, f"{name}={address}")
    return address


@contextlib.contextmanager
def joined(address: str, environment: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Join the cluster as a driver. An existing session of this process is used and left running.

    Args:
        address: result of `head_address`.
        environment: Ray's runtime environment of tasks and actors.

    Raises:
        ClusterError: nothing answers there, this machine is not one of its nodes, or versions differ.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    given = ADDRESS if os.environ.get(ADDRESS) == address else "--ray-address"
    check_answers(address, f"{given}={address}")
    options = {
        "address": address,
        "runtime_env": dict(environment or {}),
        "log_to_driver": False,
        "logging_level": logging.WARNING,
    }
    init_ray(options, joins=address, name=f"{given}={address}")
    try:
        yield
    finally:
        ray.shutdown()
