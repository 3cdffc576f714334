"""Preparation of each of a run's Ray workers, before it runs anything: Ray's setup hook.

Sockets are closed to strangers. TransferQueue and torch listen without asking who speaks, and
TransferQueue unpickles what it gets, so one message would run code in the trainer.

Checkpoints run no code when they are loaded. verl's and TransferQueue's files are pickles, and verl loads
them as such. A pickle is a program, and a checkpoint may be another's.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import os
import pickle
import re
import secrets
import socket
import tempfile
from collections import defaultdict
from types import SimpleNamespace
from typing import Any


def variables() -> dict[str, str]:
    """Return the environment variables of workers that call `prepare`. Their children inherit them."""
    from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR

    return {WORKER_PROCESS_SETUP_HOOK_ENV_VAR: f"{__name__}.prepare"}


def prepare() -> None:
    """Close this process's sockets to strangers, and load checkpoints without running code."""
    encrypt_transfer_queue()
    bind_stores()
    # The rollout's HTTP server of vLLM gets a key; nobody in a run needs it.
    os.environ.setdefault("VLLM_API_KEY", secret_for("vllm").hex())
    load_weights_only()
    load_queue_safely()


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
    modules: list[Any] = [importlib.import_module(name) for name in _MAKERS]
    create = modules[0].create_zmq_socket

    @functools.wraps(create)
    def create_zmq_socket(ctx: Any, socket_type: Any, *args: Any, **kwargs: Any) -> Any:
        return encrypted(create(ctx, socket_type, *args, **kwargs))

    for module in modules:
        assert module.create_zmq_socket is create, module
        module.create_zmq_socket = create_zmq_socket


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

    plain: Any = distributed.TCPStore

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
    distributed.TCPStore = rendezvous.TCPStore = TCPStore  # pyrefly: ignore[bad-assignment]


def load_weights_only() -> None:
    """Make `torch.load` run no code of a file. Bytes in memory come from this run's own processes.

    It then raises CheckpointError for a file that holds anything but tensors and plain values.
    """
    import numpy as np
    import torch

    from coding_model_project.errors import CheckpointError

    numpys = importlib.import_module("numpy._core.multiarray")
    dtypes = [value for value in vars(np.dtypes).values() if isinstance(value, type)]
    torch.serialization.add_safe_globals(
        [np.ndarray, np.dtype, numpys._reconstruct, numpys.scalar, *dtypes]
    )
    load: Any = torch.load

    def load_safely(file: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(file, str | os.PathLike):
            return load(file, *args, **options)
        try:
            return load(file, *args, **options | {"weights_only": True})
        except pickle.UnpicklingError as error:
            raise CheckpointError(_refusal(file, error)) from error

    torch.load = load_safely


def load_queue_safely() -> None:
    """Make TransferQueue write its checkpoints by torch, and load no code from them."""
    import torch
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage

    def dump(state: Any, file: Any, protocol: int) -> None:
        torch.save(state, file, pickle_protocol=protocol)

    def dumps(state: Any, protocol: int) -> bytes:
        buffer = io.BytesIO()
        dump(state, buffer, protocol)
        return buffer.getvalue()

    def load(file: Any) -> Any:
        return torch.load(file, weights_only=True)

    def loads(content: bytes) -> Any:
        return load(io.BytesIO(content))

    torch.serialization.add_safe_globals(
        [controller.DataPartitionStatus, controller.FieldMeta, defaultdict, set, list, dict]
    )
    for module in (controller, simple_storage):
        module.pickle = SimpleNamespace(  # pyrefly: ignore[bad-assignment]
            HIGHEST_PROTOCOL=2, dump=dump, dumps=dumps, load=load, loads=loads
        )


def _refusal(file: Any, error: Exception) -> str:
    """Return one line with the reason why a file is not loaded."""
    found = re.search(r"(Unsupported|GLOBAL)[^\n]*", str(error))
    return (
        f"{os.fspath(file)}: holds more than tensors and plain values, and loading it could run code "
        f"({found[0] if found else 'not a checkpoint'}); use a checkpoint that this package has written"
    )
