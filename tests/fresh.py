"""A recipe's command as a fresh process, forked from one that has imported what all recipes do.

So a test costs what its command does, and not a second of imports before. The process that they are
forked from is Python's own fork server: a new interpreter, which knows nothing of the tests.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import runpy
import sys
import tempfile
import traceback
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

IMPORTED = (
    "pytest",
    "tests.composed_recipes",
    "coding_model_project.launch.run",
    "coding_model_project.evaluation",
)
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str
    imported: frozenset[str]
    """Modules that it had imported when it ended."""


def run(module: str, *arguments: str, cwd: Path | None = None) -> Ended:
    """Run `python -m module arguments`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    cwd = cwd or Path.cwd()
    with contextlib.chdir(ROOT):  # it searches its folder first: verl installs a package `tests`
        forkserver.ensure_running()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        process = context.Process(target=_carry_out, args=(module, arguments, cwd, out))
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"python -m {module} {arguments} has not ended")
        with contextlib.closing(process):
            modules = out / "modules.json"
            return Ended(
                returncode=process.exitcode,
                stdout=(out / "stdout").read_text(),
                stderr=(out / "stderr").read_text(),
                imported=frozenset(json.loads(modules.read_text())),
            )


def _carry_out(module: str, arguments: tuple[str, ...], cwd: Path, out: Path) -> None:
    os.chdir(cwd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        descriptor = os.open(out / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.argv = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)  # it is to run, not to have been imported
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        (out / "modules.json").write_text(json.dumps(sorted(sys.modules)))
