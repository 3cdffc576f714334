"""Names that are unique on a host, whatever clusters run on it."""

from __future__ import annotations

import ray


def job_of_cluster() -> str:
    """Return a name of this Ray job that is unique among all clusters on this host.

    Ray numbers the jobs of each cluster from 1. verl sends weights to vLLM through a socket in /tmp that
    it names after that number alone. Two runs that each start a Ray would share the socket: one waits for
    ever, or loads the weights of the other.
    """
    context = ray.get_runtime_context()
    return f"{context.get_job_id()}-{context.gcs_address.replace(':', '-')}"
