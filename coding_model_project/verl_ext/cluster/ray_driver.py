"""Driver of an existing Ray cluster, for judging and evaluation."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import ray

from coding_model_project.errors import ConfigError
from coding_model_project.launch.joining import check_address, check_answers
from coding_model_project.verl_ext.cluster.session import init_ray

ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable with the head's address; an option overrides it."""


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
