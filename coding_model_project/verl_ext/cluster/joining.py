"""Joins a Ray cluster that is there already, and says in a line why it cannot."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from coding_model_project.errors import ClusterError, ConfigError

ADDRESS = "RAY_ADDRESS"
"""The environment variable that names the head where no option does; Ray's own."""

_CONNECT_S = 10.0


def head_address(given: str | None) -> str:
    """Return the head's HOST:PORT, as given or from the environment.

    Raises:
        ConfigError: there is none, or it is of another form.
    """
    name, address = ("--ray-address", given) if given else (ADDRESS, os.environ.get(ADDRESS, ""))
    host, _, port = address.rpartition(":")
    if not address:
        raise ConfigError(
            "--cluster=ray: the cluster's address is missing; give --ray-address HOST:PORT "
            f"(coding.evaluation.ray_address) or set {ADDRESS}; `ray start --head` prints it"
        )
    if "//" in address or not host or not port.isdecimal():
        raise ConfigError(
            f"{name}={address}: must be HOST:PORT of the head, such as 10.0.0.1:6379, without ray://; "
            "run the command on a node of the cluster"
        )
    return address


@contextlib.contextmanager
def joined(given: str | None, environment: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Be a driver of the cluster; a session that this process is in already is used and left as it is.

    Args:
        given: the head's HOST:PORT; None for `RAY_ADDRESS`.
        environment: Ray's runtime environment of what is started.

    Raises:
        ConfigError: there is no such address.
        ClusterError: nothing answers there, this machine is not one of its nodes, or versions differ.
    """
    if ray.is_initialized():
        yield
        return
    address = head_address(given)
    _check_head(address)
    handler = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    try:
        ray.init(
            address=address,
            runtime_env=dict(environment or {}),
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (RayError, RuntimeError, ValueError, OSError) as error:
        ray.shutdown()
        raise ClusterError(_why(address, error)) from error
    finally:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _check_head(address: str) -> None:
    """Ray would try for minutes.

    Raises:
        ClusterError: nothing answers.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"--ray-address={address}: the head of the Ray cluster does not answer "
            f"({error.strerror or error}); look there with `ray status`, or start it with "
            f"`ray start --head --port={port}`"
        ) from error


def _why(address: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        return f"--ray-address={address}: this node's versions differ from the head's: {text}"
    if "oken" in text and "uth" in text:
        return (
            f"--ray-address={address}: the head refuses this process's token; set RAY_AUTH_MODE=token "
            "and RAY_AUTH_TOKEN to the head's (`ray get-auth-token` there)"
        )
    return (
        f"--ray-address={address}: this machine cannot join ({text[:300]}); run "
        f"`ray start --address={address}` on it first"
    )
