"""Workers forked from one process that has imported, once for all, what takes long of verl's imports.

verl starts seven Ray workers and vLLM two processes, one after another, and each spends six to twelve
seconds of one core on the same imports: without an accelerator half of the time until the first step.
Forked ones also share the memory of what was imported. `forkserver_client` runs in the place of Python:
Ray has a key for that (`py_executable` of its runtime environment), and `multiprocessing` a function
(`set_executable`). It asks here for a process, and is a plain Python where there is nobody to ask.

    python -m coding_model_project.verl_ext.cluster.forkserver SOCKET MODULE,MODULE,…  (the server)
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
    "vllm.engine.arg_utils",
    "vllm.entrypoints.openai.chat_completion.protocol",
)
"""Not Ray, nor what imports it: it reads a worker's environment when it is imported."""

SPAWNER = "CODING_MODEL_PROJECT_SPAWNER"
"""The environment variable that says what `multiprocessing` is to start processes with."""

_MOST_DESCRIPTORS = 250
"""Linux takes 253 in a message."""
_REAP_EVERY_S = 1.0
_SPINS = "2000"
"""Turns for which a thread of OpenMP waits for its next share of work before it sleeps, in forked
processes. To wake a thread takes longer than most shares of a small model's training step. libgomp reads
it when it is loaded, here, so it holds for vLLM's processes too, which generate while programs are judged
and must not keep a core from those. A step's generation and update, and vLLM's processes, took 11.4 s,
3.1 s and 8.9 s of CPU with 20,000 turns; 8.3, 3.7 and 5.6 with 2,000; 10.1, 5.5 and 4.3 with none."""


@contextlib.contextmanager
def running(imports: Sequence[str] = SLOW_IMPORTS) -> Iterator[str]:
    """The server, as long as this context or process lasts; gives what to run in the place of Python."""
    with tempfile.TemporaryDirectory(prefix="fork-") as folder:
        path = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(128)  # who asks before the imports are done waits
            server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno()), ",".join(imports)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what fails is tried again, and said, by a plain Python
                stderr=subprocess.DEVNULL,
                env={**os.environ, "GOMP_SPINCOUNT": _SPINS},
                pass_fds=[listening.fileno()],
                start_new_session=True,  # Ctrl-C is for the run's main process
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
    """Have `multiprocessing` fork this process's children in the server, if one is running."""
    if spawner := os.environ.get(SPAWNER):
        multiprocessing.set_executable(spawner)


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    for name in filter(None, sys.argv[2].split(",")):
        importlib.import_module(name)
    with contextlib.suppress(ImportError):
        import setproctitle

        # It finds the memory of the command line now; not in a forked process, whose environment is new.
        setproctitle.setproctitle(setproctitle.getproctitle())
    gc.collect()
    gc.freeze()  # a collection in a forked process would write to, and so copy, all it shares
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [], _REAP_EVERY_S)
        if sys.stdin in ready:  # closed: its parent has ended
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
    """Be the process that is asked for: its files, environment, folder, priority and arguments.

    The connection stays open until this process ends, which ends the client.
    """
    # Ray kills the process group of each worker that ends, even of an idle one: none may be shared.
    os.setpgid(0, 0)
    asked, descriptors = _received(connection)
    connection = _take(connection, descriptors, asked["descriptors"])
    connection.sendall(struct.pack("I", os.getpid()))
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    os.setpriority(os.PRIO_PROCESS, 0, asked["nice"])
    Path("/proc/self/oom_score_adj").write_text(asked["oom_score_adj"])
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    arguments = asked["arguments"]
    if "-c" in arguments:  # as multiprocessing starts a process, after options of the interpreter
        code, *rest = arguments[arguments.index("-c") + 1 :]
        sys.argv[:] = ["-c", *rest]
        threading.Thread(target=_end_with, args=[connection], daemon=True).start()
        spawn_from_here()
        exec(code, {"__name__": "__main__"})
        sys.exit()
    sys.argv[:] = arguments
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()


def _take(
    connection: socket.socket, descriptors: Sequence[int], numbers: Sequence[int]
) -> socket.socket:
    """Give the received files the numbers that they have in the client; returns the connection."""
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
    """End this process once its client has ended: who started that one takes it for this one."""
    connection.recv(1)
    os._exit(1)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What `forkserver_client` sends.

    Raises:
        struct.error, ValueError: it ended before it had sent all.
    """
    head, descriptors, _, _ = socket.recv_fds(connection, struct.calcsize("I"), _MOST_DESCRIPTORS)
    (size,) = struct.unpack("I", head)
    body = bytearray()
    while len(body) < size and (part := connection.recv(size - len(body))):
        body += part
    return json.loads(body), descriptors


if __name__ == "__main__":
    main()
