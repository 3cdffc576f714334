"""A script that compiles the driver once per server; each request then carries the result.

It is sent as source, with everything that it needs in one file (`bundle`), so it imports nothing of this
package.
"""

# ruff: noqa: UP036, T201 - it runs on what the server has, and prints for `bundle`.

from __future__ import annotations

import importlib.util
import json
import marshal
import shutil
import subprocess
import sys
from pathlib import Path

_FUTURE = "from __future__ import annotations\n"
GIVEN, CODE, LIBRARY = (f"coding_model_project.{suffix}" for suffix in ("json", "pyc", "so"))

_MAIN = """
import marshal, posix
lean = {"__name__": "lean"}
exec(marshal.loads(LEAN), lean)
lean["start"](CODES, PATH, PREFIX, FILTERS, OWN_PID, LIBRARY and posix.getcwd() + "/" + LIBRARY)
"""


def main() -> None:
    if sys.version_info < (3, 10):
        sys.exit("the driver needs Python 3.10 or later, this is " + sys.version.split()[0])
    with open(GIVEN) as file:
        given = json.load(file)
    constants = {
        "CODES": {name: _compiled(name, source) for name, source in given["sources"].items()},
        "LEAN": _compiled("lean", given["lean"]),
        "PATH": [path for path in sys.path[1:] if Path(path).exists()],
        "PREFIX": sys.prefix,
        "FILTERS": tuple(map(bytes.fromhex, given["filters"])),
        "OWN_PID": given["own_pid"],
        "LIBRARY": LIBRARY if _has_loop(given["loop"], given["flags"]) else "",
    }
    lines = [f"{name} = {value!r}\n" for name, value in constants.items()]
    code = _compiled("main", "".join(lines) + _MAIN)
    with open(CODE, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + bytes(12) + code)
    print("built")


def _compiled(name: str, source: str) -> bytes:
    path = f"/{name.replace('.', '/')}.py"
    source = source.replace(
        _FUTURE, "", 1
    )  # the flag replaces it, which saves the driver the import
    flags = annotations.compiler_flag
    return marshal.dumps(compile(source, path, "exec", flags, dont_inherit=True, optimize=2))


def _has_loop(source: str, flags: list[str]) -> bool:
    """Compile the loop that forks tests; return false without a C compiler or if that fails."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return False
    with open("loop.c", "w") as file:
        file.write(source)
    command = [compiler, *flags, "-s", "loop.c", "-o", LIBRARY]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


main()
