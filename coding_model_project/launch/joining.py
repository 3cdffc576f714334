"""Which Ray a training joins, found out before Ray is imported, and whether it answers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.errors import ClusterError, ConfigError

ADDRESS = "ray_kwargs.ray_init.address"
_TIMEOUT_S = 10.0


def joined_ray(config: DictConfig) -> str | None:
    """Return the address of the Ray that `ray.init` joins; None where it starts one of its own."""
    address = OmegaConf.select(config, ADDRESS) or "auto"
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or _recorded()
    return None if address in (None, "auto", "local") else address


def check_head(config: DictConfig) -> None:
    """Make sure that the Ray that is joined answers: Ray itself would try for half a minute.

    Raises:
        ConfigError: its address is none, or of Ray's client.
        ClusterError: nothing answers there; says what named it.
    """
    address = joined_ray(config)
    if address is None:
        return
    named = f"{_named_by(config)}{address}"
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise ConfigError(
            f"{named}: expected HOST:PORT of a Ray head; run the command on a node of the cluster"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except OSError as error:
        raise ClusterError(
            f"{named}: no Ray head answers there ({error.strerror or error}); start one with "
            f"`ray start --head --port={port}`, or correct the address (+{ADDRESS}=local: a Ray here)"
        ) from error


def _named_by(config: DictConfig) -> str:
    if OmegaConf.select(config, ADDRESS) not in (None, "auto"):
        return f"{ADDRESS}="
    return "RAY_ADDRESS=" if os.environ.get("RAY_ADDRESS") else f"{_record()}: "


def _record() -> Path:
    """The file in which `ray start` leaves its address."""
    root = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(root, "ray", "ray_current_cluster")


def _recorded() -> str | None:
    try:
        return _record().read_text().strip() or None
    except OSError:
        return None
