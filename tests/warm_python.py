"""A `python` whose interpreters are forked from one that has imported what most commands do.

python -c "from tests.warm_python import main; main()" FOLDER     writes FOLDER/python, and serves it

A command that is started by FOLDER/python runs in a process of its own, with the caller's descriptors,
folder and variables, and ends as in a new interpreter: only the imports have been done before. What is
not imported here, such as torch, is found as ever. Ends with its standard input.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
from contextlib import suppress
from pathlib import Path

IMPORTED = (
    "tests.composed_recipes",
    "coding_model_project.cli",
    "coding_model_project.data.training.training_files",
    "coding_model_project.evaluation.rejudging",
    "coding_model_project.grading.base",
    "coding_model_project.grading.instructions",
    "coding_model_project.harbor.export.exporting",
    "coding_model_project.harbor.trial",
    "coding_model_project.launch.run",
    "coding_model_project.reports",
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
    while 0 not in select.select([0, listening], [], [])[0]:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        client, _ = listening.accept()
        if os.fork():
            client.close()
            continue
        head, descriptors, _, _ = socket.recv_fds(client, 8, 3)
        command = json.loads(_exactly(client, int.from_bytes(head, "little")))
        pid = os.fork()
        for number, descriptor in enumerate(descriptors):
            if pid == 0:
                os.dup2(descriptor, number)
            os.close(descriptor)
        if pid == 0:
            client.close()
            return command
        if client in select.select([os.pidfd_open(pid), client], [], [])[0]:
            os.kill(pid, signal.SIGTERM)  # the client was ended: so is what it stands for
        status = os.waitpid(pid, 0)[1]
        with suppress(OSError):
            client.send(status.to_bytes(8, "little"))
        os._exit(0)
    return None


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
