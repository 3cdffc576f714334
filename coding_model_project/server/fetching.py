"""`fetch_files` for a sandbox that returns only output: the program prints its files as it ends.

The files are the program's own, so there is nothing to forge. A killed program returns none.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

_WRAPPER = """\
def fetch(names=NAMES, mark=MARK):
    import base64, json, os, sys
    found = {}
    for name in names:
        try:
            with open(name, "rb") as file:
                found[name] = base64.b64encode(file.read()).decode()
        except (OSError, ValueError):
            pass
    sys.stdout.flush()
    data = memoryview((mark + json.dumps(found)).encode())
    while data:
        data = data[os.write(1, data):]

import atexit
atexit.register(fetch)
del fetch, atexit
exec(compile(SOURCE, "main.py", "exec", dont_inherit=True))
"""


def wrap(source: str, names: Sequence[str]) -> tuple[str, str]:
    """Return a program that runs `source` and then prints files, and the mark before them."""
    mark = secrets.token_hex(16)
    wrapper = _WRAPPER.replace("NAMES", repr(tuple(names)), 1).replace("MARK", repr(mark), 1)
    return wrapper.replace("SOURCE", repr(source), 1), mark


def split(stdout: str, mark: str) -> tuple[str, dict[str, str]]:
    """Return the program's own output, and its files in base64."""
    printed, found, files = stdout.partition(mark)
    if not found:
        return stdout, {}
    try:
        return printed, {str(name): str(content) for name, content in json.loads(files).items()}
    except (ValueError, AttributeError):  # truncated by the output limit
        return printed, {}
