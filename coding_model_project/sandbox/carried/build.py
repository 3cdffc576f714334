"""A script that compiles the driver once per machine; each request then carries the result.

It is sent as source, with everything that it needs in one file (`fusion.capabilities`), so it imports
nothing of this package.
"""

# ruff: noqa: UP036, T201 - it runs on what the machine has, and prints for `capabilities`.

from __future__ import annotations

import importlib.util
import json
import marshal
import shutil
import subprocess
import sys
from pathlib import Path

GIVEN, CODE, LIBRARY = (f"coding_model_project.{suffix}" for suffix in ("json", "pyc", "so"))

_MAIN = """
import gc, marshal, sys
from _frozen_importlib import ModuleSpec

gc.disable()  # until the zygote is ready: a collection would scan all modules and find nothing


class Carried:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in CODES:
            return ModuleSpec(name, Carried, is_package=CODES[name][0])

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        code = marshal.loads(CODES[module.__name__][1])
        module.__file__ = code.co_filename
        exec(code, module.__dict__)


sys.meta_path.insert(0, Carried)
sys.path[:] = PATH
sys.prefix = sys.exec_prefix = PREFIX
from coding_model_project.sandbox.carried import driver
driver.main(LIBRARY)
"""
"""The driver's first module. Its constants precede it: modules by name, the `sys.path` of programs, the
prefix of the Python environment, which they may read, and the compiled loop, if any."""


def main() -> None:
    if sys.version_info < (3, 10):
        sys.exit("the driver needs Python 3.10 or later, this is " + sys.version.split()[0])
    with open(GIVEN) as file:
        given = json.load(file)
    constants = {
        "CODES": {
            path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): (
                path.endswith("/__init__.py"),
                _compiled(f"/{path}", source),
            )
            for path, source in given["sources"].items()
        },
        "PATH": [path for path in sys.path[1:] if Path(path).exists()],
        "PREFIX": sys.prefix,
        "LIBRARY": LIBRARY if _has_loop(given["loop"], given["flags"]) else "",
    }
    lines = [f"{name} = {value!r}\n" for name, value in constants.items()]
    code = _compiled("/main.py", "".join(lines) + _MAIN)
    with open(CODE, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + bytes(12) + code)
    print("built")


def _compiled(path: str, source: str) -> bytes:
    return marshal.dumps(compile(source, path, "exec", dont_inherit=True, optimize=2))


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
