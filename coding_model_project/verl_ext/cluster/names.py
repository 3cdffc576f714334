"""Names that are unique on a host, whatever clusters run on it."""

from __future__ import annotations

import ray


def job_of_cluster() -> str:
    """Name this Ray job among those of all clusters on this host.

    Ray numbers the jobs of each cluster from 1. verl names the socket in /tmp through which weights go
    to vLLM after that number alone, so two runs that start a Ray of their own would share it: one waits
    for ever, or takes the weights of the other.
    """
    context = ray.get_runtime_context()
    return f"{context.get_job_id()}-{context.gcs_address.replace(':', '-')}"
