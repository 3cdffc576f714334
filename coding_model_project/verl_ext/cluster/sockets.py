"""Sockets of a run that no stranger can speak to, with names that are unique on a host.

TransferQueue and torch listen without asking who speaks. TransferQueue also unpickles what it gets, so
one message would run code in the trainer. `worker_setup` calls this in every Ray worker of a run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import secrets
import socket
import tempfile
from typing import Any

_NAME = b"secret"
_NAMESPACE = b"coding_model_project"
_MAKERS = (
    "transfer_queue.utils.zmq_utils",
    "transfer_queue.controller",
    "transfer_queue.storage.simple_storage",
    "transfer_queue.storage.managers.base",
)
"""TransferQueue's modules that make sockets."""


@functools.cache
def secret() -> bytes:
    """Return 32 random bytes that all processes of this Ray cluster share, and nobody else knows.

    They are in the head's memory, which answers only who has Ray's token.
    """
    from ray.experimental import internal_kv as kv

    kv._internal_kv_put(_NAME, secrets.token_bytes(32), overwrite=False, namespace=_NAMESPACE)
    return kv._internal_kv_get(_NAME, namespace=_NAMESPACE)


def secret_for(use: str) -> bytes:
    """Return 32 secret bytes for one use."""
    return hashlib.blake2b(use.encode(), key=secret(), digest_size=32).digest()


def job_of_cluster() -> str:
    """Return a name of this Ray job that is unique among all clusters on this host.

    Ray numbers the jobs of each cluster from 1. verl sends weights to vLLM through a socket in /tmp that
    it names after that number alone. Two runs that each start a Ray would share the socket: one waits for
    ever, or loads the weights of the other.
    """
    import ray

    job = ray.get_runtime_context().get_job_id()
    return f"{job}-{secret_for('weight socket').hex()[:12]}"


def own_place(handle: str) -> str:
    """Return verl's address of a weight socket, moved to the run's own folder for temporary files.

    Another user could listen in /tmp first, and the reader unpickles what it gets.
    """
    return handle.replace("/tmp/rl-colocate-zmq", f"{tempfile.gettempdir()}/w", 1)


def encrypt_transfer_queue() -> None:
    """Make TransferQueue's sockets use CURVE with a key that only this cluster's processes have.

    A server reveals its public key to nobody, and without it a client's first message is not
    understood: libzmq drops the connection before it reads a frame.
    """
    modules = [importlib.import_module(name) for name in _MAKERS]
    create: Any = modules[0].create_zmq_socket  # type: ignore[reportAttributeAccessIssue]

    @functools.wraps(create)
    def create_zmq_socket(ctx: Any, socket_type: Any, *args: Any, **kwargs: Any) -> Any:
        return encrypted(create(ctx, socket_type, *args, **kwargs))

    for module in modules:
        assert module.create_zmq_socket is create, module  # type: ignore[reportAttributeAccessIssue]
        module.create_zmq_socket = create_zmq_socket  # type: ignore[reportAttributeAccessIssue]


def encrypted(made: Any) -> Any:
    """Return a ZeroMQ socket with CURVE: a ROUTER as server, any other as client."""
    import zmq
    from zmq.utils import z85

    private = z85.encode(secret_for("transfer_queue"))
    if made.socket_type == zmq.ROUTER:
        made.curve_secretkey = private
        made.curve_server = True
    else:
        made.curve_publickey, made.curve_secretkey = zmq.curve_keypair()
        made.curve_serverkey = zmq.curve_public(private)
    return made


def bind_stores() -> None:
    """Make torch's TCPStore listen on the address that it is given; by itself it takes all of them."""
    from torch import distributed

    plain: Any = distributed.TCPStore  # type: ignore[reportPrivateImportUsage]

    class TCPStore(plain):
        def __init__(
            self,
            host_name: str,
            port: int,
            world_size: int | None = None,
            is_master: bool = False,
            *args: Any,
            **options: Any,
        ) -> None:
            if is_master and not args and options.get("master_listen_fd") is None:
                family = socket.AF_INET6 if ":" in host_name else socket.AF_INET
                # Otherwise this process has a store there already, which torch shares.
                with contextlib.suppress(OSError):
                    listening = socket.create_server((host_name, port), family=family)
                    port = listening.getsockname()[1]
                    options["master_listen_fd"] = listening.detach()
            super().__init__(host_name, port, world_size, is_master, *args, **options)

    # `torch.distributed.rendezvous` is also the name of a function.
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    distributed.TCPStore = rendezvous.TCPStore = TCPStore  # type: ignore[reportPrivateImportUsage]


def require_key_of_vllm() -> None:
    """Give vLLM's HTTP server of the rollout a key; nobody in a run needs it."""
    os.environ.setdefault("VLLM_API_KEY", secret_for("vllm").hex())
