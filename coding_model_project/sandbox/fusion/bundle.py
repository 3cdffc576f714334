"""The driver as one text: what a server is sent as the code to run."""

from __future__ import annotations

import base64
import json
import zlib
from functools import lru_cache

from coding_model_project.isolation.carried_source import PACKAGE, carried

_ENTRY = f"{PACKAGE}.sandbox.fusion.driver"

MARK = "# coding_model_project.driver/1\n"
"""The text's first line. A server that confines programs itself knows the driver by it, and does
what it would do: a program there may start no processes."""

_TEXT = """\
{mark}import base64, enum, importlib.abc, importlib.machinery, json, os, sys, types, typing, zlib

if sys.version_info < (3, 10):
    sys.exit("the driver needs Python 3.10 or later, this is " + sys.version.split()[0])
if os.environ.get("PYTHONHASHSEED") != "0":  # the same program gives the same output everywhere
    kept = {{k: os.environ[k] for k in ("PATH", "LD_LIBRARY_PATH") if k in os.environ}}
    kept.update(PYTHONHASHSEED="0", PYTHONUTF8="1", LANG="C.UTF-8")
    kept.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    os.execve(sys.executable, [sys.executable, "-s", "-B", *sys.argv], kept)

SOURCES = json.loads(zlib.decompress(base64.b85decode("{sources}")))

if not hasattr(enum, "StrEnum"):  # Python 3.10
    class StrEnum(str, enum.Enum):
        __str__ = str.__str__
    enum.StrEnum, typing.Self = StrEnum, typing.Any
sys.modules["psutil"] = types.ModuleType("psutil")  # imported, and used on the host only


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=SOURCES[name][0])

    def exec_module(self, module):
        module.__file__ = "/" + module.__name__.replace(".", "/") + ".py"
        source = SOURCES[module.__name__][1]
        exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, Finder())
from {entry} import main

main("{tier}")
"""


@lru_cache
def driver_code(tier: str) -> str:
    """The code of a driver that confines programs at this tier; 3.10 is the oldest Python it runs on."""
    return _TEXT.format(mark=MARK, sources=_sources(), entry=_ENTRY, tier=tier)


@lru_cache
def _sources() -> str:
    """The driver's module and all of the package that it imports, compressed: by name, whether it is a
    package, and its source."""
    found = {}
    for path, source in carried(_ENTRY).items():
        name = path.removesuffix(".py").replace("/", ".")
        found[name.removesuffix(".__init__")] = (name.endswith(".__init__"), source)
    return base64.b85encode(zlib.compress(json.dumps(found).encode(), 9)).decode()
