"""What a node must have in common with the one that a run is started on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from coding_model_project.errors import ClusterError, ConfigError

_CLOCK_S = 30.0
"""How far clocks may be apart: leases of run folders are renewed and taken over by them."""


def look_function() -> Callable[[str, list[str]], dict[str, Any]]:
    """Return what looks at a node. Ray carries it by value, so that a node needs no package of ours."""

    def look(mark: str, paths: list[str]) -> dict[str, Any]:
        import hashlib
        import importlib.metadata
        import importlib.util
        import os
        import platform
        import time
        from pathlib import Path

        versions = {"Python": platform.python_version()}
        for name in ("verl", "vllm", "torch", "ray", "transformers"):
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = "missing"
        spec = importlib.util.find_spec("coding_model_project")
        if spec is None or spec.origin is None:
            versions["coding_model_project"] = "missing"
        else:  # its version says little: nodes have checkouts
            root = Path(spec.origin).parent
            digest = hashlib.sha256()
            for file in sorted(root.rglob("*.py")):
                digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
            versions["coding_model_project"] = f"source {digest.hexdigest()[:12]}"
        meminfo = Path("/proc/meminfo").read_text()
        available = next(line for line in meminfo.splitlines() if "MemAvailable" in line)
        return {
            "versions": versions,
            "available_gb": int(available.split()[1]) / 2**20,
            "clock": time.time(),
            "shared": Path(mark).exists() and os.access(Path(mark).parent, os.W_OK),
            "missing": [path for path in paths if not Path(path).exists()],
        }

    return look


def wanted_paths(config: DictConfig) -> Mapping[str, str]:
    """Return the paths that judges and ranks, which are on all nodes, read; and the key of each."""
    wanted = {str(Path(path).absolute()): "coding.problems" for path in config.coding.problems}
    model = config.actor_rollout_ref.model.path
    if Path(model).expanduser().exists():  # else a name on the hub
        wanted[str(Path(model).expanduser().absolute())] = "actor_rollout_ref.model.path"
    return wanted


def compare(
    config: DictConfig,
    node: str,
    seen: Mapping[str, Any],
    mine: Mapping[str, Any],
    wanted: Mapping[str, str],
) -> None:
    """Refuse a node that cannot do its part.

    Args:
        node: for the message.
        seen: of the node, as `look_function` gives it; mine: of this one, at the same time or before.

    Raises:
        ClusterError: other versions, or another time.
        ConfigError: it lacks memory, or does not see a folder or file of the configuration.
    """
    for name, version in seen["versions"].items():
        ours = mine["versions"][name]
        if version != ours:
            raise ClusterError(
                f"{node}: {name} is {version} there and {ours} here; install the same on every node "
                "(the same commit, the same requirements file), and restart Ray there"
            )
    ahead = max(seen["clock"] - time.time(), 0) or min(seen["clock"] - mine["clock"], 0)
    if abs(ahead) > _CLOCK_S:
        way = "ahead of" if ahead > 0 else "behind"
        raise ClusterError(
            f"{node}: its clock is {abs(ahead):.0f} s {way} this node's; set all nodes' clocks by NTP"
        )
    if not seen["shared"]:
        raise ConfigError(
            f"{node}: coding.run_dir={config.coding.run_dir} is not the same folder there, or cannot be "
            "written; mount the shared folder there, or set coding.run_dir to one that all nodes share"
        )
    for path in seen["missing"]:
        raise ConfigError(
            f"{node}: {wanted[path]}: no {path} there; put it where every node can read it"
        )
    needed = config.coding.min_memory_gb
    if seen["available_gb"] < needed:
        raise ConfigError(
            f"{node}: coding.min_memory_gb={needed:g}: {seen['available_gb']:.1f} GB of memory are free "
            "there; free some, or lower the batch and set coding.min_memory_gb"
        )
