"""Detection of the Ray cluster that a training joins, before Ray is imported."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from coding_model_project.contained import is_ours
from coding_model_project.errors import ClusterError, ConfigError

ADDRESS = "ray_kwargs.ray_init.address"
_TIMEOUT_S = 10.0


def joined_ray(config: DictConfig) -> str | None:
    """Return the address of the Ray cluster that `ray.init` joins; None if it starts its own."""
    address = OmegaConf.select(config, ADDRESS) or "auto"
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "auto":
        address = _recorded()
    return None if address in (None, "local") else address


def check_head(config: DictConfig) -> None:
    """Check that the Ray cluster that a training joins answers.

    Raises:
        ConfigError: the address is malformed, or is a Ray Client address.
        ClusterError: nothing answers there; the message names the setting that gave the address.
    """
    if (address := joined_ray(config)) is not None:
        check_address(address, f"{_named_by(config)}{address}")
        check_answers(address, f"{_named_by(config)}{address}", f", or set +{ADDRESS}=local")
    elif (record := _record()).exists() and not is_ours(record):
        print(f"{record} is another user's: starting a Ray instead of joining theirs", flush=True)


def check_address(address: str, named: str) -> None:
    """Check that an address is that of a Ray head.

    Args:
        named: the setting and the address, for the error message.

    Raises:
        ConfigError: the address has another form, such as a Ray Client address.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise ConfigError(
            f"{named}: must be HOST:PORT of a Ray head, such as 10.0.0.1:6379, without ray://; run the "
            "command on a node of the cluster"
        )


def check_answers(address: str, named: str, otherwise: str = "") -> None:
    """Check that something listens at a head's address; Ray itself retries for half a minute.

    Args:
        named: as in `check_address`.
        otherwise: an alternative fix, appended to the error message.

    Raises:
        ClusterError: nothing answers.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        why = getattr(error, "strerror", None) or error
        raise ClusterError(
            f"{named}: no Ray head answers there ({why}); start one with "
            f"`ray start --head --port={port}`, or correct the address{otherwise}"
        ) from error


def _named_by(config: DictConfig) -> str:
    if OmegaConf.select(config, ADDRESS) not in (None, "auto"):
        return f"{ADDRESS}="
    given = os.environ.get("RAY_ADDRESS", "auto") not in ("", "auto")
    return "RAY_ADDRESS=" if given else f"{_record()}: "


def _record() -> Path:
    """Return the file in which `ray start` records its address."""
    root = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(root, "ray", "ray_current_cluster")


def _recorded() -> str | None:
    """Return the recorded address, unless another user of this machine wrote it."""
    record = _record()
    try:
        return (record.read_text().strip() or None) if is_ours(record) else None
    except OSError:
        return None
