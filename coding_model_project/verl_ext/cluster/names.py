"""Names that are unique on a host, whatever clusters run on it."""

from __future__ import annotations

import tempfile

import ray

from coding_model_project.verl_ext.cluster.sockets import secret_for


def job_of_cluster() -> str:
    """Return a name of this Ray job that is unique among all clusters on this host.

    Ray numbers the jobs of each cluster from 1. verl sends weights to vLLM through a socket in /tmp that
    it names after that number alone. Two runs that each start a Ray would share the socket: one waits for
    ever, or loads the weights of the other.
    """
    job = ray.get_runtime_context().get_job_id()
    return f"{job}-{secret_for('weight socket').hex()[:12]}"


def own_place(handle: str) -> str:
    """Return verl's address of a weight socket, moved to the run's own folder for temporary files.

    Another user could listen in /tmp first, and the reader unpickles what it gets.
    """
    return handle.replace("/tmp/rl-colocate-zmq", f"{tempfile.gettempdir()}/w", 1)
