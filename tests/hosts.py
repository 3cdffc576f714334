"""Hosts of one machine: programs in namespaces of their own, with process ids, a host name and mounts."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ON_A_HOST = [
    *("unshare", "--fork", "--pid", "--kill-child", "--mount-proc", "--uts", "--mount"),
    *("sh", "-c"),
]

needs_namespaces = pytest.mark.skipif(
    subprocess.run([*ON_A_HOST, "true"], capture_output=True, check=False).returncode != 0,
    reason="no namespaces here",
)


@contextmanager
def host(name: str, code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program of Python on a host of its own. It gets the path as its argument."""
    command = [*ON_A_HOST, 'hostname "$0" && exec "$@"', name, sys.executable, "-c"]
    process = subprocess.Popen(
        [*command, textwrap.dedent(code), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
