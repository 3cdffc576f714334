"""A `python` whose interpreters are forked from one that has imported what most commands do.

python -c "from tests.warm_python import main; main()" FOLDER     writes FOLDER/python, and serves it

A command that is started by FOLDER/python runs in a process of its own, with the caller's descriptors,
folder and variables, and ends as in a new interpreter: only the imports have been done before. What is
not imported here, such as torch, is found as ever. Ends with its standard input.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
from contextlib import suppress
from pathlib import Path

IMPORTED = (
    "tests.composed_recipes",
    "coding_model_project.api",
    "coding_model_project.cli",
    "coding_model_project.cli.judging",
    "coding_model_project.data.loaders",
    "coding_model_project.data.training.training_files",
    "coding_model_project.doctor.profile",
    "coding_model_project.evaluation.rejudging.evaluations",
    "coding_model_project.grading.batch",
    "coding_model_project.grading.instructions.grader",
    "coding_model_project.grading.judge",
    "coding_model_project.harbor.export.exporting",
    "coding_model_project.harbor.trial",
    "coding_model_project.launch.run",
    "coding_model_project.reports",
    "coding_model_project.runs.summary",
    "coding_model_project.sandbox.conformance",
    "huggingface_hub",
    "pandas",
    "pyarrow.parquet",
    "rich.progress",
    "s3fs",
    "scipy.stats",
)
MODULES = "WARM_PYTHON_MODULES"
"""Variable with a file for the names of the modules that a command has imported when it ends."""

_CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
first = sys.argv[1:2]
if not first or first[0].startswith("-") and first[0] not in ("-m", "-c", "-"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    body = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(body).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(body)
    status = os.waitstatus_to_exitcode(int.from_bytes(server.recv(8), "little"))
if status < 0:
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def main() -> None:
    """Serve commands; in a forked process, return after having run one."""
    folder = Path(sys.argv[1])
    found = sys.path[1:]
    if given := os.environ.get("PYTHONPATH"):
        found = [one for one in found if one not in given.split(os.pathsep)]
    for name in IMPORTED:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # verl installs a package of this name
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        client = _CLIENT.format(python=sys.executable, address=str(folder / "socket"))
        (folder / "partial").write_text(client)
        (folder / "partial").chmod(0o755)
        (folder / "partial").rename(folder / "python")
        command = _serve(listening)
    if command is not None:
        _run(*command, found)


def _serve(listening: socket.socket) -> tuple[list[str], dict[str, str], str] | None:
    """Fork a process for each client. Return its command in that process, and None at the end."""
    clients: dict[int, socket.socket] = {}
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    with selectors.DefaultSelector() as selector:
        for one in (0, listening, woken):
            selector.register(one, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    for pid in clients:
                        os.kill(pid, signal.SIGTERM)
                    return None
                if key.fileobj is woken:
                    woken.recv(1 << 10)
                    for pid, status in _ended(clients):
                        with clients.pop(pid) as client, suppress(OSError, KeyError):
                            client.send(status.to_bytes(8, "little"))
                            selector.unregister(client)
                elif key.fileobj is listening:
                    client, _ = listening.accept()
                    head, descriptors, _, _ = socket.recv_fds(client, 8, 3)
                    command = json.loads(_exactly(client, int.from_bytes(head, "little")))
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, before)
                        for number, descriptor in enumerate(descriptors):
                            os.dup2(descriptor, number)
                            os.close(descriptor)
                        for one in (client, woken, wake, *clients.values()):
                            one.close()
                        return tuple(command)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    clients[pid] = client
                    selector.register(client, selectors.EVENT_READ)
                else:  # the client was ended: so is what it stands for
                    for pid in [pid for pid, one in clients.items() if one is key.fileobj]:
                        selector.unregister(key.fileobj)
                        os.kill(pid, signal.SIGTERM)


def _ended(clients: dict[int, socket.socket]) -> list[tuple[int, int]]:
    found = (os.waitpid(pid, os.WNOHANG) for pid in clients)
    return [(pid, status) for pid, status in found if pid]


def _exactly(client: socket.socket, n: int) -> bytes:
    content = b""
    while len(content) < n:
        content += client.recv(n - len(content)) or sys.exit("a client ended within its request")
    return content


def _run(arguments: list[str], variables: dict[str, str], folder: str, found: list[str]) -> None:
    """Run a command as `python` does."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    if listed := os.environ.pop(MODULES, None):
        atexit.register(lambda: Path(listed).write_text("\n".join(sorted(sys.modules))))
    paths = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    kind, *rest = arguments
    sys.path[:] = ["", *paths, *found]
    if kind == "-m":
        module = rest[0]
        sys.argv = rest
        sys.path[0] = folder
        sys.modules.pop(f"{module}.__main__", None)  # it is to run, not to have been imported
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif kind in ("-", "-c"):
        text, name = (sys.stdin.read(), "<stdin>") if kind == "-" else (rest.pop(0), "<string>")
        sys.argv = [kind, *rest]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(text, name, "exec"), vars(main))
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(kind).resolve().parent)
        runpy.run_path(kind, run_name="__main__")
