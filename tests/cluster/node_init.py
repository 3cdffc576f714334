"""First process of a node, which mounts the node's own file systems and ends with the rig.

    unshare … python -S node_init.py HOST ROOT SHARED KEEP...

It is process 1 of the node's process namespace, so its end ends the node. Its standard input is a pipe
from the rig, which closes when the rig ends in any way. With SHARED "-" the node is the switch, which
keeps the rig's folder on the host and removes it at the end.
"""

import contextlib
import os
import select
import shutil
import socket
import subprocess
import sys
from pathlib import Path

_REAP_EVERY_S = 1.0
_ASIDE = "/mnt"
SERVER = ".server"
"""Name of the shared folder in each node's rig folder, where it stays while it is unmounted elsewhere."""


def main() -> None:
    host, root, shared, *keep = sys.argv[1:]
    socket.sethostname(host)
    if shared != "-":
        _own_files(Path(root), Path(shared), [Path(path) for path in keep])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], _REAP_EVERY_S)[0]:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    if shared == "-":
        shutil.rmtree(root, ignore_errors=True)


def _own_files(root: Path, shared: Path, keep: list[Path]) -> None:
    """Give the node its own /tmp and /dev/shm, and keep some folders of the host's /tmp."""
    _mount("--make-rprivate", "/")
    _mount("--rbind", "/tmp", _ASIDE)
    for path in ("/tmp", "/dev/shm"):
        _mount("-t", "tmpfs", "-o", "mode=1777", "rig", path)
    for path in keep:
        _bind(Path(_ASIDE) / path.relative_to("/tmp"), path)
    (root / "private").mkdir(parents=True)
    _bind(Path(_ASIDE) / shared.relative_to("/tmp"), root / SERVER)
    _bind(root / SERVER, shared)
    subprocess.run(["umount", "-l", _ASIDE], check=True)


def _bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _mount("--bind", str(source), str(target))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main()
