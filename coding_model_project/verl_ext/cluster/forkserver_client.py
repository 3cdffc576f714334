"""`python -S -E forkserver_client.py SOCKET SCRIPT …`: the script, in a process that `forkserver` forks.

Started for every Ray worker, so it imports next to nothing.
"""

import json
import os
import socket
import struct
import sys


def main() -> None:
    _, path, *arguments = sys.argv
    with open("/proc/self/oom_score_adj") as file:
        oom_score_adj = file.read()
    asked = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib would take longer than all else here
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "oom_score_adj": oom_score_adj,
    }
    body = json.dumps(asked).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        socket.send_fds(connection, [struct.pack("I", len(body))], [0, 1, 2])
        connection.sendall(body)
        taken = connection.recv(1)
    except OSError:
        taken = b""
    if not taken:  # the server has ended: it takes longer without
        os.execv(sys.executable, [sys.executable, *arguments])
    connection.recv(1)  # no more is sent: the connection ends with the process that was asked for


if __name__ == "__main__":
    main()
