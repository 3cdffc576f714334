"""Commands as fresh processes whose imports were done before: a test costs what its command does."""

import atexit
import functools
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.warm_python import MODULES

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 100

_SERVE = "import sys; sys.path[0] = sys.argv.pop(1); from tests.warm_python import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str
    imported: frozenset[str]
    """Modules that it had imported when it ended."""


@functools.cache
def python() -> Path:
    """Return a `python` of this process's tests, in a folder of its own (`tests.warm_python`)."""
    folder = tempfile.TemporaryDirectory(prefix="warm-", ignore_cleanup_errors=True)
    command = [sys.executable, "-c", _SERVE, str(ROOT), folder.name]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    atexit.register(folder.cleanup)
    atexit.register(server.communicate)  # it ends with its input
    made = Path(folder.name, "python")
    while not made.exists():
        assert server.poll() is None, "the warm python has ended"
        time.sleep(0.02)
    return made


def run(module: str, *arguments: str, cwd: Path | None = None) -> Ended:
    """Run `python -m module arguments`."""
    with tempfile.NamedTemporaryFile() as modules:
        done = subprocess.run(
            [python(), "-m", module, *arguments],
            cwd=cwd,
            env={**os.environ, MODULES: modules.name},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        imported = frozenset(Path(modules.name).read_text().splitlines())
    return Ended(
        returncode=done.returncode, stdout=done.stdout, stderr=done.stderr, imported=imported
    )
