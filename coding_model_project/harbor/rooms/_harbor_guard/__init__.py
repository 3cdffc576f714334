"""Imported by every Python of a room as it starts; does something in the verifier's phase only.

A verifier that imports the candidate's `solution.py` hands it its own process: `os._exit(0)`, an object
that equals everything or a patched `unittest` then decide the test. So in that phase

- a name that the candidate's files shadow is found where the image has it;
- a module that the candidate wrote, and no package of it, runs in a process of its own (`serving`), and
  only data crosses (`sandbox.embedded.asserts`);
- compiled files that the candidate left beside the image's sources are not read;
- a script that the candidate wrote may no longer write to /tests and /logs/verifier.

The candidate's files are those that changed between the image's making and the agent's end, or since its
code ran again, in the verifier's time. The kernel sets a file's time, and no process can.
"""

# Runs in whatever Python a room has: nothing newer than 3.8, and as few imports as possible.

import os
import sys

_STATE, _RAN = "/.verifier/state", "/.verifier/ran"
_HERE = os.path.dirname(os.path.abspath(__file__))
_OFF = "harbor_guard_off"


class _Phase:
    """When the candidate was at work, by the clock of files."""

    def __init__(self, begin, end):
        self.begin, self.end = begin, end

    def wrote(self, path):
        try:
            found = os.stat(path)
        except (OSError, ValueError, TypeError):
            return False
        if found.st_ctime_ns <= self.end:
            return self.begin < found.st_ctime_ns
        try:
            return os.stat(_RAN).st_ctime_ns <= found.st_ctime_ns
        except OSError:
            return False


class _Finder:
    """Stands before the finder of files on sys.path."""

    def __init__(self, phase, files):
        self._phase, self._files = phase, files

    def find_spec(self, name, path=None, target=None):
        spec = self._files.find_spec(name, path, target)
        if spec is None or not spec.has_location:
            return spec
        if path is None and self._phase.wrote(spec.origin):
            return self._elsewhere(name) or self._apart(spec)
        if spec.cached and self._phase.wrote(spec.cached):
            return _uncached(spec)
        return spec

    def _elsewhere(self, name):
        """The same name from a file that the candidate did not write."""
        for entry in sys.path:
            spec = self._files.find_spec(name, [entry])
            if spec is not None and spec.has_location and not self._phase.wrote(spec.origin):
                return spec
        return None

    def _apart(self, spec):
        if spec.submodule_search_locations is not None or not spec.origin.endswith(".py"):
            return spec  # a package is more than a few functions: it shares the verifier's process
        if sys.version_info < (3, 11):
            return spec  # what this project runs there needs as much
        from importlib.machinery import ModuleSpec

        apart = ModuleSpec(spec.name, _Apart(spec.origin), origin=spec.origin)
        apart.has_location = True
        return apart

    def invalidate_caches(self):
        pass


class _Apart:
    """Loads a module that runs in another process."""

    def __init__(self, origin):
        self._origin = origin

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from _harbor_guard import apart

        apart.fill(module, self._origin)


def _uncached(spec):
    from importlib.machinery import SourceFileLoader

    class FromSource(SourceFileLoader):
        def get_code(self, fullname):
            path = self.get_filename(fullname)
            return self.source_to_code(self.get_data(path), path)

    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = FromSource(spec.name, spec.origin)
    return spec


def _script():
    """The file that this interpreter was told to run; None without one."""
    words = list(getattr(sys, "orig_argv", ()))[1:]
    while words:
        word = words.pop(0)
        if word in ("-X", "-W"):
            del words[:1]
        elif word.startswith("-"):
            if word == "-" or (not word.startswith("--") and ("c" in word or "m" in word)):
                return None
        else:
            return word
    return None


def _start():
    try:
        with open(_STATE) as file:
            begin, end = map(int, file.read().split())
    except (OSError, ValueError):
        return
    if _OFF in sys._xoptions:
        return
    phase = _Phase(begin, end)
    for index, finder in enumerate(sys.meta_path):
        if getattr(finder, "__name__", "") == "PathFinder":
            sys.meta_path.insert(index, _Finder(phase, finder))
            break
    script = _script()
    if script is not None and phase.wrote(script):
        from _harbor_guard import bars

        bars.close(reading_tests=True)


_start()
