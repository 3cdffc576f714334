"""`python -S -E forkserver_client.py SOCKET ARGUMENT …`: Python, in a process that `forkserver` forks.

The arguments are a script with its arguments, as Ray starts workers, or `-c` and code, as
`multiprocessing` starts processes. Every process starts this module, so it imports next to nothing.
"""

import json
import os
import signal
import socket
import struct
import sys


def main() -> None:
    _, path, *arguments = sys.argv
    with open("/proc/self/oom_score_adj") as file:
        oom_score_adj = file.read()
    if "-c" in arguments and "--multiprocessing-fork" not in arguments:  # its resource tracker
        os.execv(sys.executable, [sys.executable, *arguments])
    descriptors = _open_descriptors()
    request = {
        "arguments": arguments,
        "descriptors": descriptors,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - importing pathlib takes longer than all else here
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "oom_score_adj": oom_score_adj,
    }
    body = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        socket.send_fds(connection, [struct.pack("I", len(body))], descriptors)
        connection.sendall(body)
        taken = connection.recv(struct.calcsize("I"))
    except OSError:
        taken = b""
    if not taken:  # the server has ended; a plain Python only starts more slowly
        os.execv(sys.executable, [sys.executable, *arguments])
    (pid,) = struct.unpack("I", taken)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    connection.recv(1)  # returns when the requested process ends and closes the connection


def _open_descriptors() -> list[int]:
    """Return the file descriptors that this process inherited."""
    listed = os.listdir("/proc/self/fd")  # noqa: PTH208 - its own descriptor is closed by now
    found = []
    for number in sorted(map(int, listed)):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


if __name__ == "__main__":
    main()
