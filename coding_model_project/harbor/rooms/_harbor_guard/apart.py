"""A module of the candidate's, as a verifier that imports it sees it: names are asked for elsewhere."""

import os
import sys
import tempfile

from _harbor_guard.library.sandbox.embedded import asserts, crossing

_MAX_BYTES = 64 << 20
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "TZ")
_SERVING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "serving.py")


class _Caller(asserts.Caller):
    """Repeats here what the module printed there: verifiers capture their own standard output."""

    def __init__(self, pipe, printed):
        super().__init__(pipe)
        self._printed, self._read = printed, 0

    def ask(self, operation, *arguments):
        try:
            return super().ask(operation, *arguments)
        finally:
            self.repeat()

    def repeat(self):
        text = os.pread(self._printed, 1 << 20, self._read)
        if text:
            self._read += len(text)
            sys.stdout.write(text.decode("utf-8", "replace"))


def fill(module, origin):
    """Start the module's process, and give this one its names.

    Raises:
        ImportError: it ended before its last line.
    """
    to_us, to_it = os.pipe(), os.pipe()
    with tempfile.TemporaryFile() as file:
        printed = os.dup(file.fileno())
    arguments = [sys.executable, "-s", "-X", "harbor_guard_off", _SERVING, module.__name__, origin]
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    null = os.open("/dev/null", os.O_RDONLY)
    moves = [(null, 0), (printed, 1), (to_it[0], 4), (to_us[1], 5)]
    high = [os.dup(fd) for fd, _ in moves]  # above the numbers they are moved to
    actions = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, (_, to) in zip(high, moves)]
    os.posix_spawn(
        sys.executable,
        arguments + [entry or os.getcwd() for entry in sys.path],
        environment,
        file_actions=actions,
    )
    for fd in (*high, null, to_it[0], to_us[1]):
        os.close(fd)
    caller = _Caller(crossing.Pipe(to_us[0], to_it[1], _MAX_BYTES), printed)
    try:
        modules, others = caller.names()
    except asserts.ProgramFailed as error:
        raise ImportError(f"{origin} did not run to its end", name=module.__name__) from error
    finally:
        caller.repeat()

    def attribute(name):
        if name in others:
            return caller.ask("find", name)
        if name in modules and name in sys.stdlib_module_names:
            return __import__(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = attribute
    module.__dir__ = lambda: sorted(others)
    module.__all__ = sorted(name for name in others if not name.startswith("_"))
    module.__file__ = origin
