"""The Ray session of a run: started here, or joined, with the environment that its workers need."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ClusterError
from coding_model_project.isolation.processes import TOKEN, own_temporary_files
from coding_model_project.launch.device import environment_of
from coding_model_project.launch.joining import joined_ray

_SIZES = ("num_cpus", "num_gpus", "object_store_memory", "resources", "labels", "include_dashboard")
"""Options of `ray.init` for a session that it starts. With one that is joined it refuses them."""
_OF_A_RUN = (TOKEN, "TORCHINDUCTOR_CACHE_DIR", "HF_HUB_OFFLINE", "WANDB_MODE")
"""Variables of this process that its workers need on other nodes too; none holds a secret."""


def start_ray(config: DictConfig, python: str | None = None) -> None:
    """Start or join Ray as verl would.

    Args:
        config: as `grpo.plain` gives it.
        python: what workers are run with (`forkserver.running`); None for this interpreter.

    Raises:
        ClusterError: the session that is joined refuses.
    """
    _init_ray(config, _with_python(environment(config), python))


def start_for_forks(config: DictConfig, python: str) -> None:
    """Start Ray before verl is imported: the workers' environment follows with the first of them."""
    _set_determinism(config)
    _init_ray(config, _with_python(_asked_environment(config), python))


def environment(config: DictConfig) -> dict[str, Any]:
    """Return the runtime environment that verl has Ray's workers in, with what the user asks for."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    _set_determinism(config)  # which verl passes on
    theirs = OmegaConf.create(get_ppo_ray_runtime_env(config))
    variables = theirs.setdefault("env_vars", {})
    variables["TRANSFER_QUEUE_ENABLE"] = "1"
    if joined_ray(config):
        variables.update(_variables_of_this_process(config.trainer.device))
    merged = OmegaConf.merge(theirs, _asked_environment(config))
    return cast("dict[str, Any]", OmegaConf.to_container(merged))


def _variables_of_this_process(device: str) -> dict[str, str]:
    """Return what this process's own workers would inherit: a joined node's have those of `ray start`."""
    names = (*environment_of(device), *_OF_A_RUN)
    found = {name: os.environ[name] for name in names if name in os.environ}
    _, folder = own_temporary_files()  # `membership` makes it on each node
    return found | ({"TMPDIR": folder} if folder else {})


def _with_python(environment: Mapping[str, Any], python: str | None) -> dict[str, Any]:
    """Return an environment whose workers are run with `python`, if it does not say with what."""
    return {**environment, "py_executable": environment.get("py_executable") or python}


def _asked_environment(config: DictConfig) -> dict[str, Any]:
    options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
    return options.get("runtime_env") or {}


def _set_determinism(config: DictConfig) -> None:
    """Set what a run with `full_determinism` has in its environment before Ray starts its workers."""
    rollout = config.actor_rollout_ref.rollout
    if rollout.full_determinism:
        os.environ["VERL_FULL_DETERMINISM"] = "1"
        os.environ["PYTHONHASHSEED"] = str(rollout.seed)


def _init_ray(config: DictConfig, environment: Mapping[str, Any]) -> None:
    options: Any = OmegaConf.to_container(config.ray_kwargs.ray_init)
    options["runtime_env"] = dict(environment)
    address = joined_ray(config)
    if address is not None:
        # In a job of Ray's, the job's own variables stay beside these.
        os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
        options = {name: value for name, value in options.items() if name not in _SIZES}
    init_ray(options, joins=address, name=f"Ray at {address}")


def init_ray(options: Mapping[str, Any], *, joins: str | None, name: str) -> None:
    """Call `ray.init`, but keep this process's handler of SIGTERM, which Ray replaces.

    Args:
        joins: HOST:PORT of the head that `options` join; None if they start a Ray.
        name: name of that Ray in errors.

    Raises:
        ClusterError: the head refuses this process, or this machine is not one of its nodes.
    """
    import ray
    from ray.exceptions import RayError

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


def _refusal(address: str, error: Exception) -> str:
    """Return in one line why Ray cannot be joined, and the way out."""
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
