"""Imported by every Python of a room as it starts; does something in the verifier's time only.

An audit hook says which files this interpreter runs and which settings it obeys, before it does.
Whose they are is decided outside of the room (`Witness`): a message is a path that is opened, and there
is no such file. Until the hook is there, and in an interpreter that never gets it, every file of the
agent's that is read counts as run.
"""

# Runs in whatever Python a room has: nothing newer than 3.8, and as few imports as possible.

import os
import sys

_MARK = "/.verifier/"
_FIXED = ("/usr/", "/python/")
"""Nothing in a room can write there."""
_IMPORTERS = ("<frozen importlib", "<frozen zipimport>", "<frozen runpy>", "<frozen site>")
_GENERATORS = frozenset(
    (
        "_pytest",
        "attr",
        "attrs",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "site",
        "typing",
    )
)
"""Modules of the image that make code of names which they have checked."""


class _Finder:
    """Stands before the finder of files on sys.path: compiled files of the agent's are not read."""

    def __init__(self, files, is_trusted):
        self._files, self._is_trusted = files, is_trusted

    def find_spec(self, name, path=None, target=None):
        spec = self._files.find_spec(name, path, target)
        cached = spec is not None and spec.has_location and spec.cached
        changeable = cached and not cached.startswith(_FIXED) and _exists(cached)
        return _uncached(spec) if changeable and not self._is_trusted(cached) else spec

    def invalidate_caches(self):
        pass


def _uncached(spec):
    from importlib.machinery import SourceFileLoader

    class FromSource(SourceFileLoader):
        def get_code(self, fullname):
            path = self.get_filename(fullname)
            return self.source_to_code(self.get_data(path), path)

    if type(spec.loader) is SourceFileLoader:
        spec.loader = FromSource(spec.name, spec.origin)
    return spec


def _exists(path):
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


def _start():
    import atexit
    from _thread import get_ident

    opening, argv = os.open, getattr(sys, "orig_argv", [])
    here = os.path.dirname(os.path.abspath(__file__))
    join, getcwd, decoded, strings = os.path.join, os.getcwd, os.fsdecode, (str, bytes)
    busy = set()

    def tell(kind, text):
        try:
            opening(_MARK + kind + ":" + text, os.O_RDONLY)
        except PermissionError:
            return False
        except (OSError, ValueError):
            return True
        return True

    def absolute(path):
        path = decoded(path)
        return path if path.startswith("/") else join(getcwd(), path)

    def imports(frame):
        name = "" if frame is None else frame.f_code.co_filename
        return name.startswith(_IMPORTERS) or name.endswith("/runpy.py")

    def asked(frame):
        """Return true if a file of the verifier's own is on the stack."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith("<"):
                if frame.f_globals.get("__name__") == "__main__" and "frozen" not in name:
                    return True
            elif not name.startswith(_FIXED):
                return True
            frame = frame.f_back
        return False

    def opened(path, mode, flags, frame):
        if not isinstance(path, strings) or flags & (os.O_WRONLY | os.O_DIRECTORY):
            return
        path = absolute(path)
        if path.startswith(_FIXED) and "/../" not in path:
            return
        if imports(frame) or path.endswith(".pyc"):
            tell("code", path)
        elif not asked(frame) and not any(absolute(word) == path for word in argv[1:]):
            tell("settings", path)

    def executed(code, frame):
        if frame is None or frame.f_code.co_filename.startswith(here):
            return  # the interpreter's own program: known from outside
        origin, module = code.co_filename, str(frame.f_globals.get("__name__"))
        library = frame.f_code.co_filename.startswith(_FIXED) or module == "site"
        if imports(frame) or (library and module.partition(".")[0] in _GENERATORS):
            if not origin.startswith(("<", *_FIXED)):
                tell("code", absolute(origin))
            return
        tell("ran", "executed code that " + module + " made")

    def hook(event, arguments):
        if event not in _EVENTS or get_ident() in busy:
            return
        busy.add(get_ident())
        try:
            frame = _caller()
            library = frame is not None and frame.f_code.co_filename.startswith(_FIXED)
            if event == "open":
                opened(*arguments, frame)
            elif event == "exec":
                executed(arguments[0], frame)
            elif event == "pickle.find_class":
                tell("ran", "unpickled " + ".".join(map(str, arguments)))
            elif not library and not imports(frame):
                tell("ran", "made code of bytes: " + event)
        finally:
            busy.discard(get_ident())

    def is_trusted(path):
        return tell("trusted", absolute(path))

    if not tell("guarded", ""):
        return  # a process of the agent's
    atexit.register(tell, "ended", "")
    sys.addaudithook(hook)
    for index, finder in enumerate(sys.meta_path):
        if getattr(finder, "__name__", "") == "PathFinder":
            sys.meta_path.insert(index, _Finder(finder, is_trusted))
            break


def _caller():
    """The frame that raised an event; None for the interpreter itself."""
    try:
        return sys._getframe(2)
    except ValueError:
        return None


_EVENTS = frozenset(("open", "exec", "pickle.find_class", "marshal.loads", "code.__new__"))

if os.path.isdir(_MARK):
    _start()
