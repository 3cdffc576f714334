"""A server that forks workers from one process, which has already imported verl's slow imports.

verl starts seven Ray workers and vLLM two processes, one after another. Each spends six to twelve seconds
of one core on the same imports; without an accelerator that is half of the time until the first step.
Forked workers also share the memory of the imports. `forkserver_client` runs in place of Python: Ray has
a key for that (`py_executable` of its runtime environment), `multiprocessing` has `set_executable`.
The client requests a process here, and falls back to a plain Python if no server runs.

    python -m coding_model_project.verl_ext.cluster.forkserver DESCRIPTOR MODULE,MODULE,…  (the server)
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import random
import runpy
import select
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from coding_model_project.extras import without_collections

SLOW_IMPORTS = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.utils.tensorboard",
    "tensordict",
    "datasets",
    "peft",
    "torchdata.stateful_dataloader",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "vllm.entrypoints.openai.api_server",
    "vllm.model_executor.models.qwen2",
    "coding_model_project.verl_ext.cluster.vllm_queue",
)
"""Modules that the server imports. None imports Ray, which reads a worker's environment at import."""

SPAWNER = "CODING_MODEL_PROJECT_SPAWNER"
"""Environment variable with the executable by which `multiprocessing` starts processes."""

_RAYS_WORKER = "default_worker.py"
"""Script of Ray that runs a worker, which imports Ray first."""
_MOST_DESCRIPTORS = 250
"""Most file descriptors in a message; Linux accepts 253."""
_REAP_EVERY_S = 1.0
_SPINS = "2000"
"""Spins of an OpenMP thread in a forked process before it sleeps while it waits for work.

Waking a thread takes longer than most pieces of work of a small model's training step. libgomp reads the
number when it is loaded, in the server. So it also holds for vLLM's processes, which generate while
programs are judged and must leave cores to those. A step's generation and update, and vLLM's processes,
took 11.4 s, 3.1 s and 8.9 s of CPU with 20,000 spins; 8.3, 3.7 and 5.6 with 2,000; 10.1, 5.5 and 4.3 with
none."""


@contextlib.contextmanager
def running(imports: Sequence[str] = SLOW_IMPORTS) -> Iterator[str]:
    """Run the server until this context or process ends; yields the command to run in place of Python."""
    with tempfile.TemporaryDirectory(prefix="fork-") as folder:
        path = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(128)  # requests wait until the imports are done
            server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno()), ",".join(imports)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # a plain Python retries a failed import and prints the error
                stderr=subprocess.DEVNULL,
                env={**os.environ, "GOMP_SPINCOUNT": _SPINS},
                pass_fds=[listening.fileno()],
                start_new_session=True,  # only the run's main process gets Ctrl-C
            )
        client = Path(__file__).with_name("forkserver_client.py")
        python = shlex.join([sys.executable, "-S", "-E", str(client), path])
        spawner = Path(folder) / "python"
        spawner.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        spawner.chmod(0o700)
        os.environ[SPAWNER] = str(spawner)
        try:
            yield python
        finally:
            del os.environ[SPAWNER]
            server.kill()
            server.communicate()


def spawn_from_here() -> None:
    """Make `multiprocessing` fork this process's children in the server, if one runs."""
    if spawner := os.environ.get(SPAWNER):
        multiprocessing.set_executable(spawner)


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    with without_collections():
        for name in filter(None, sys.argv[2].split(",")):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        import setproctitle

        # It finds the memory of the command line only here: forked processes replace their environment.
        setproctitle.setproctitle(setproctitle.getproctitle())
    gc.collect()
    gc.freeze()  # a collection in a forked process would write to shared pages, which copies them
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [], _REAP_EVERY_S)
        if sys.stdin in ready:  # closed: the parent has ended
            return
        if listening in ready:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _become(connection)
            connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(connection: socket.socket) -> NoReturn:
    """Become the requested process, with its files, environment, folder, priority and arguments.

    The connection stays open until this process ends; then the client ends too.
    """
    # Ray kills the process group of every worker that ends, so each worker needs its own group.
    os.setpgid(0, 0)
    request, descriptors = _received(connection)
    connection = _take(connection, descriptors, request["descriptors"])
    connection.sendall(struct.pack("I", os.getpid()))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.setpriority(os.PRIO_PROCESS, 0, request["nice"])
    Path("/proc/self/oom_score_adj").write_text(request["oom_score_adj"])
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    arguments = request["arguments"]
    if "-c" in arguments:  # multiprocessing's form, after options of the interpreter
        code, *rest = arguments[arguments.index("-c") + 1 :]
        sys.argv[:] = ["-c", *rest]
        threading.Thread(target=_end_with, args=[connection], daemon=True).start()
        spawn_from_here()
        exec(code, {"__name__": "__main__"})
        sys.exit()
    sys.argv[:] = arguments
    sys.path[0] = str(Path(sys.argv[0]).parent)
    if Path(sys.argv[0]).name == _RAYS_WORKER:
        _let_ray_name_it()
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()


def _let_ray_name_it() -> None:
    """Have Ray name this process with the package `setproctitle`, so that `ps` and `top` show its actor.

    Ray's own copy looks for the command line's memory beside the environment, which was replaced, and
    then does nothing.
    """
    with contextlib.suppress(ImportError):
        import setproctitle

        rays: Any = importlib.import_module("ray._raylet")
        rays.setproctitle = setproctitle.setproctitle


def _take(
    connection: socket.socket, descriptors: Sequence[int], numbers: Sequence[int]
) -> socket.socket:
    """Give the received files the numbers that they have in the client, and return the connection."""
    above = max(numbers) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
    kept = socket.socket(fileno=fcntl.fcntl(connection.detach(), fcntl.F_DUPFD_CLOEXEC, above))
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return kept


def _end_with(connection: socket.socket) -> None:
    """End this process when its client ends, since the client's parent sees only the client."""
    with contextlib.suppress(ConnectionResetError):  # of a client that ended before it read our id
        connection.recv(1)
    os._exit(1)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read the request of `forkserver_client`, and return it with its file descriptors.

    Raises:
        struct.error, ValueError: the client ended before its request was complete.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, struct.calcsize("I"), _MOST_DESCRIPTORS)
    (size,) = struct.unpack("I", head)
    body = bytearray()
    while len(body) < size and (part := connection.recv(size - len(body))):
        body += part
    return json.loads(body), descriptors


if __name__ == "__main__":
    main()
