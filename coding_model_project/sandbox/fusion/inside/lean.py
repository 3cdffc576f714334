"""A loader of this package's modules in a server, without standard modules that cost more than a test.

A server starts a new Python for every request, so each request pays for the driver's imports. CPU
milliseconds, Python 3.10: the interpreter alone 8; dataclasses 21, socket 12, typing 11, traceback 11,
json 10, pathlib 14, ctypes 6, os 3; the C modules below them (`_json`, `_ctypes`, `_socket`) less
than 1. So the package's modules get stand-ins from here that do only what these modules use. Programs
never see them: an `__import__` that only our modules have returns them. Modules that are not listed here
are the real ones, imported on first use.

This file may import only built-in and C modules (`compile_driver` makes the driver from it).
"""

# Stand-ins have the names of the originals, and C modules have no stubs.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportArgumentType=false

from __future__ import annotations

import _functools
import _json
import _signal
import builtins
import errno
import gc
import marshal
import math
import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PACKAGE = "coding_model_project"
CODES: dict[str, bytes] = {}
"""Marshalled code of the package's modules by name."""

Module = type(sys)


class _StandIn(Module):
    """A module with a few names; all others are those of the real one, which is then imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by every import
            raise AttributeError(name)
        return getattr(real(self.__name__), name)


def make(name: str, **content: Any) -> Any:
    """Return a stand-in with this content."""
    module = _StandIn(name)
    module.__dict__.update(content)
    return module


# ── importing ─────────────────────────────────────────────────────────────────────────────────────


class Lazy:
    """A module that is imported on first use."""

    def __init__(self, name: str, load: Callable[[str], Any]) -> None:
        self.__dict__.update(_name=name, _load=load)

    def _module(self) -> Any:
        module = self.__dict__.get("_found")
        if module is None:
            module = self.__dict__["_found"] = self._load(self._name)
        return module

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(self._module(), name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        setattr(self._module(), name, value)


def real(name: str) -> Any:
    """Return a module of the interpreter."""
    __import__(name)
    return sys.modules[name]


_loaded: dict[str, Any] = {}


def load(name: str) -> Any:
    """Return a module of this package, or a stand-in."""
    if name not in _loaded:
        module = _loaded[name] = Module(name)
        code = marshal.loads(CODES[name])
        module.__dict__.update(__file__=code.co_filename, __builtins__=_BUILTINS)
        exec(code, module.__dict__)
    return _loaded[name]


class _Package:
    """The package, or one of its modules from which a name is imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        whole = f"{self._name}.{name}"
        if whole in _loaded:
            return _loaded[whole]
        return Lazy(whole, load) if whole in CODES else getattr(load(self._name), name)


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0):
    if name.partition(".")[0] == PACKAGE:
        return _Package(name)
    if name in _loaded:
        return _loaded[name]
    if name in sys.builtin_module_names or fromlist:
        return __import__(name, globals, locals, fromlist, level)
    return Lazy(name, real)


_BUILTINS = {**builtins.__dict__, "__import__": _import}

# ── dataclasses, enum, typing ─────────────────────────────────────────────────────────────────────


class _Field:
    def __init__(self, default_factory: Callable[[], Any]) -> None:
        self.default_factory = default_factory


def dataclass(cls: Any = None, *, eq: bool = True, **_: Any) -> Any:
    """Do what the real one does for classes that inherit no fields; ignore slots and freezing."""
    if cls is None:
        return lambda cls: dataclass(cls, eq=eq)
    names = [name for name in cls.__annotations__ if name != "_"]
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}

    def __init__(self: Any, *values: Any, **named: Any) -> None:
        own = {**defaults, **dict(zip(names, values, strict=False)), **named}
        if len(own) != len(names):
            raise TypeError(f"{cls.__name__} takes {names}, got {list(own)}")
        for name, value in own.items():
            self.__dict__[name] = value.default_factory() if type(value) is _Field else value

    def key(self: Any) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in names)

    cls.__init__ = __init__
    cls.__dataclass_fields__ = names
    if eq:
        cls.__eq__ = lambda self, other: type(other) is type(self) and key(self) == key(other)
        cls.__hash__ = lambda self: hash(key(self))
    return cls


def replace(instance: Any, **changes: Any) -> Any:
    return type(instance)(**{**instance.__dict__, **changes})


class _EnumType(type):
    def __new__(cls, name: str, bases: Any, space: dict[str, Any]) -> Any:
        kept = {
            key: value
            for key, value in space.items()
            if key.startswith("_") or not isinstance(value, str)
        }
        made = super().__new__(cls, name, bases, kept)
        made._members = {}
        for key in space:
            if key not in kept:
                member = str.__new__(made, space[key])
                member.name, member.value = key, space[key]
                made._members[space[key]] = member
                type.__setattr__(made, key, member)
        return made

    def __call__(cls, value: str) -> Any:
        if value not in cls._members:
            raise ValueError(f"{value!r} is not a valid {cls.__name__}")
        return cls._members[value]

    def __iter__(cls) -> Any:
        return iter(cls._members.values())


class StrEnum(str, metaclass=_EnumType):
    """An enum whose members are strings, unique by identity."""

    __str__ = str.__str__
    __hash__ = str.__hash__


class _Names:
    """A module of names for annotations only, which are never evaluated."""

    TYPE_CHECKING = False

    def __getattr__(self, name: str) -> Any:
        return object


# ── functools, contextlib ─────────────────────────────────────────────────────────────────────────


def lru_cache(function: Any = None, maxsize: int | None = None) -> Any:
    """Cache everything: a driver ends soon."""
    if not callable(function):
        return lru_cache
    known: dict[Any, Any] = {}

    def remembered(*args: Any, **named: Any) -> Any:
        key = (args, tuple(sorted(named.items())))
        if key not in known:
            known[key] = function(*args, **named)
        return known[key]

    return remembered


class suppress:
    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def contextmanager(function: Callable[..., Any]) -> Any:
    class Managed:
        def __init__(self, *args: Any) -> None:
            self._generator = function(*args)

        def __enter__(self) -> Any:
            return next(self._generator)

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            if kind is None:
                next(self._generator, None)
                return False
            try:
                self._generator.throw(error)
            except BaseException as raised:
                if raised is error:
                    return False
                raise
            return True

    return lambda *args: Managed(*args)  # a function, so that it may be a method


# ── json ──────────────────────────────────────────────────────────────────────────────────────────


class _Decoding:
    strict = True
    object_hook = None
    parse_float, parse_int = float, int

    def __init__(self, object_pairs_hook: Any) -> None:
        self.object_pairs_hook = object_pairs_hook
        self.memo: dict[str, str] = {}

    @staticmethod
    def parse_constant(name: str) -> float:
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[name]


_scanner = lru_cache(lambda hook: _json.make_scanner(_Decoding(hook)))


def loads(data: str | bytes, *, object_pairs_hook: Any = None) -> Any:
    text = data if isinstance(data, str) else bytes(data).decode("utf-8", "surrogatepass")
    text = text.strip(" \t\n\r")
    try:
        value, end = _scanner(object_pairs_hook)(text, 0)
    except StopIteration:
        raise ValueError("no JSON") from None
    if end != len(text):
        raise ValueError("more than one value")
    return value


def _unencodable(value: Any) -> Any:
    raise TypeError(f"a {type(value).__name__} is no JSON")


def dumps(value: Any) -> str:
    encode = _json.make_encoder(
        {}, _unencodable, _json.encode_basestring_ascii, None, ": ", ", ", False, False, True
    )
    return "".join(encode(value, 0))


# ── os, pathlib ───────────────────────────────────────────────────────────────────────────────────


class _Environment:
    """The environment of programs, whether `os` is already imported or will be later."""

    def get(self, name: str) -> None: ...

    def clear(self) -> None:
        posix.environ.clear()
        if "os" in sys.modules:
            sys.modules["os"].environ.clear()

    def update(self, **variables: str) -> None:
        posix.environ.update({k.encode(): v.encode() for k, v in variables.items()})
        if "os" in sys.modules:
            sys.modules["os"].environ.update(variables)


class _Os:
    """`posix`, with the real `os` for all that it lacks."""

    devnull = "/dev/null"

    def __init__(self) -> None:
        self.__dict__["environ"] = _Environment()
        self.__dict__["path"] = make("path", abspath=lambda name: f"{posix.getcwd()}/{name}")

    def __getattr__(self, name: str) -> Any:
        value = getattr(posix if hasattr(posix, name) else real("os"), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        """Set it in the real modules too: modules that programs import use those."""
        self.__dict__[name] = value
        for module in (posix, sys.modules.get("os")):
            if module is not None:
                setattr(module, name, value)


class Path(str):
    """The few path operations that confining needs."""

    def __truediv__(self, other: str) -> Path:
        return Path(other if other.startswith("/") else f"{self.rstrip('/')}/{other}")

    @property
    def parent(self) -> Path:
        return Path(self.rpartition("/")[0] or "/")

    @property
    def parents(self) -> list[Path]:
        return [self.parent, *self.parent.parents] if self != "/" else []

    def relative_to(self, other: str) -> Path:
        return Path(self[len(other.rstrip("/")) :].lstrip("/"))

    def is_relative_to(self, other: str) -> bool:
        return self == other or self.startswith(f"{other.rstrip('/')}/")

    def _mode(self, look: Any = posix.stat) -> int:
        try:
            return look(self).st_mode & 0o170000
        except OSError:
            return 0

    def exists(self) -> bool:
        return self._mode() != 0

    def is_dir(self) -> bool:
        return self._mode() == 0o040000

    def is_symlink(self) -> bool:
        return self._mode(posix.lstat) == 0o120000

    def readlink(self) -> Path:
        return Path(posix.readlink(self))

    def resolve(self) -> Path:
        try:
            fd = posix.open(self, posix.O_PATH | posix.O_CLOEXEC)
        except OSError:
            return self
        try:
            return Path(posix.readlink(f"/proc/self/fd/{fd}"))
        finally:
            posix.close(fd)

    def with_suffix(self, suffix: str) -> Path:
        return Path(self.rpartition(".")[0] + suffix)

    def symlink_to(self, target: str) -> None:
        posix.symlink(target, self)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        if exist_ok and self.is_dir():
            return
        if parents and not self.parent.exists():
            self.parent.mkdir(parents=True, exist_ok=True)
        posix.mkdir(self)

    def rmdir(self) -> None:
        posix.rmdir(self)

    def stat(self) -> Any:
        return posix.stat(self)

    def touch(self) -> None:
        posix.close(posix.open(self, posix.O_WRONLY | posix.O_CREAT, 0o644))

    def read_text(self) -> str:
        with open(self) as file:
            return file.read()

    def write_text(self, text: str) -> None:
        with open(self, "w") as file:
            file.write(text)

    def write_bytes(self, data: bytes) -> None:
        with open(self, "wb") as file:
            file.write(data)


# ── ctypes ────────────────────────────────────────────────────────────────────────────────────────


def _ctypes_module(_: str) -> Any:
    import _ctypes

    def simple(name: str, code: str) -> Any:
        return type(_ctypes._SimpleCData)(name, (_ctypes._SimpleCData,), {"_type_": code})

    char, long = simple("c_char", "c"), simple("c_long", "l")

    def create_string_buffer(data: bytes, size: int | None = None) -> Any:
        buffer = (char * (len(data) + 1 if size is None else size))()
        buffer.raw = data
        return buffer

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = simple("c_int", "i")

    class PyDLL:
        def __init__(self, path: str | None, **_: Any) -> None:
            self._handle = _ctypes.dlopen(path, 0)

        def __getattr__(self, name: str) -> Any:
            function = Function(_ctypes.dlsym(self._handle, name))
            setattr(self, name, function)
            return function

    return make(
        "ctypes", PyDLL=PyDLL, pythonapi=PyDLL(None), Structure=_ctypes.Structure,
        Array=_ctypes.Array, POINTER=_ctypes.POINTER, byref=_ctypes.byref,
        addressof=_ctypes.addressof, get_errno=_ctypes.get_errno, c_char=char, c_long=long,
        c_int=Function._restype_, c_int64=long, c_int32=Function._restype_,
        c_uint32=simple("c_uint", "I"), c_double=simple("c_double", "d"),
        c_char_p=simple("c_char_p", "z"), c_void_p=simple("c_void_p", "P"),
        py_object=simple("py_object", "O"), create_string_buffer=create_string_buffer,
    )  # fmt: skip


# ── stand-ins for our modules ─────────────────────────────────────────────────────────────────────


def _simplefilter(action: str) -> None:
    """Add a filter to `_warnings`, where C code looks until `warnings` itself is imported."""
    import _warnings

    _warnings.filters.insert(0, (action, None, Warning, None, 0))
    getattr(_warnings, "_filters_mutated", lambda: real("warnings").simplefilter(action))()


def _format_exception(kind: Any, error: Any, trace: Any, limit: int) -> list[str]:
    """Format an error with the interpreter's own hook, which needs no module."""
    kept, sys.stderr = sys.stderr, _Written()
    sys.tracebacklimit = abs(limit)
    try:
        sys.__excepthook__(kind, error.with_traceback(trace), trace)
        return sys.stderr.parts
    finally:
        sys.stderr = kept
        del sys.tracebacklimit


class _Written:
    encoding, errors = "utf-8", "backslashreplace"

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        self.parts.append(text)

    def flush(self) -> None: ...


def _print_exc() -> None:
    sys.__excepthook__(*sys.exc_info())


def _freeze() -> None:
    """Freeze without collecting: all objects are young and needed."""
    gc.freeze()
    gc.enable()


_names = _Names()
_loaded.update({
    "dataclasses": make("dataclasses", dataclass=dataclass, replace=replace, KW_ONLY=object,
                        field=lambda default_factory: _Field(default_factory)),
    "enum": make("enum", StrEnum=StrEnum),
    "typing": _names,
    "collections.abc": _names,
    "collections": make("collections", Counter=lambda *of: real("collections").Counter(*of),
                        namedtuple=lambda *of: real("collections").namedtuple(*of)),
    "functools": make("functools", lru_cache=lru_cache, partial=_functools.partial),
    "contextlib": make("contextlib", suppress=suppress, contextmanager=contextmanager),
    "json": make("json", loads=loads, dumps=dumps),
    "os": _Os(),
    "pathlib": make("pathlib", Path=Path),
    "ctypes": Lazy("ctypes", _ctypes_module),
    "signal": _signal,
    "socket": Lazy("_socket", real),
    "struct": Lazy("_struct", real),
    "operator": Lazy("_operator", real),
    "types": make("types", ModuleType=Module, CodeType=type(make.__code__), FunctionType=type(make)),
    "platform": make("platform", machine=lambda: posix.uname().machine,
                     python_version=lambda: ".".join(map(str, sys.version_info[:3]))),
    "importlib": make("importlib", import_module=real),
    "warnings": make("warnings", simplefilter=_simplefilter),
    "traceback": make("traceback", format_exception=_format_exception, print_exc=_print_exc),
    "gc": make("gc", collect=lambda: None, freeze=_freeze),
    "lean": make("lean", load=load),
    "math": math, "errno": errno, "time": time, "sys": sys, "builtins": builtins,
})  # fmt: skip


def start(
    codes: dict[str, bytes],
    path: list[str],
    prefix: str,
    filters: tuple[bytes, bytes],
    own_pid: int,
    library: str,
) -> None:
    """Run the driver; never returns.

    Args:
        codes: the content of `CODES`.
        path: the `sys.path` of programs.
        prefix: prefix of the Python environment, which programs may read.
        filters: programs of `isolation.seccomp`, computed in advance: without grants, and with
            `OWN_FILES`.
        own_pid: placeholder in them for the process's own id.
        library: path of the compiled loop; empty for none.
    """
    gc.disable()  # until the zygote is ready: a collection would scan all modules and find nothing
    CODES.update(codes)
    sys.path[:] = path
    sys.prefix = sys.exec_prefix = prefix
    _loaded[f"{PACKAGE}.isolation.seccomp"] = make(
        "seccomp",
        program=lambda machine, granted: filters[bool(granted)],
        OWN_FILES=True,
        OWN_PID=own_pid,
    )
    load(f"{PACKAGE}.sandbox.fusion.inside.driver").main(library)
