"""Names that a program may use while it provably keeps nothing between two inputs."""

from __future__ import annotations
import __future__

import builtins
import functools
import io
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

BUILTINS = frozenset(
    """
    abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float
    frozenset hash hex int isinstance iter len list map max min next oct ord pow print range repr reversed
    round set sorted str sum tuple zip NotImplemented Ellipsis object
    ArithmeticError AssertionError AttributeError BaseException EOFError Exception IndexError KeyError
    LookupError MemoryError NameError NotImplementedError OverflowError
    StopIteration TypeError UnboundLocalError UnicodeError ValueError ZeroDivisionError
    """.split()  # noqa: SIM905 - a list of names is read best as text
)
"""Built-in functions and classes. They change only their arguments, and none reaches a name by a string
(`getattr`, `eval`), a namespace (`vars`), a file, or an address (`id`)."""

CAUGHT = frozenset(
    """
    ArithmeticError AssertionError AttributeError EOFError IndexError KeyError LookupError NameError
    NotImplementedError OverflowError StopIteration TypeError UnboundLocalError UnicodeError ValueError
    ZeroDivisionError
    """.split()  # noqa: SIM905
)
"""Exceptions that a program may catch. Those of the recursion limit and of memory are excluded, and their
base classes too."""

MODULES: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "__future__": "annotations division print_function generator_stop",
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "cmath": "exp log phase pi polar rect sqrt e inf nan",
        "collections": "OrderedDict defaultdict deque",
        "functools": "cache cmp_to_key lru_cache reduce",
        "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
        "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle "
        "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap takewhile "
        "tee zip_longest",
        "math": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e "
        "erf erfc exp exp2 expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose "
        "isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow "
        "prod radians remainder sin sinh sqrt tan tanh tau trunc ulp",
        "operator": "add and_ eq floordiv ge gt itemgetter le lshift lt mod mul ne neg or_ pow rshift "
        "sub truediv xor",
        "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable "
        "punctuation whitespace",
        "sys": "maxsize",
    }.items()
}
"""Values that may be imported from each module: functions and types of C, and constants. No function here
has state. Attributes can be set only on those of `functools`, and the proof allows it on none."""

CLASSES = {"collections": frozenset({"Counter"})}
"""Classes of Python code: like a program's own, they may only be called and used in type checks."""

TYPES = {
    "typing": frozenset(
        """
        Any Callable Collection Counter DefaultDict Deque Dict FrozenSet Generator Hashable Iterable
        Iterator List Literal Mapping NoReturn Optional Sequence Set Sized Text Tuple Type Union
        """.split()  # noqa: SIM905
    )
}
"""Names for annotations only."""

_KINDS = (
    *(str, bytes, bytearray, list, tuple, dict, set, frozenset, int, float, complex, range, slice),
    *(Counter, OrderedDict, defaultdict, deque),
)
_UNLISTED = {"format", "format_map"}
"""Methods that would read any attribute by its name; `format` of a literal is checked instead."""

METHODS = (
    frozenset(name for kind in _KINDS for name in dir(kind) if not name.startswith("_"))
    | {"from_iterable", "send", "args", "value"}
) - _UNLISTED
"""Methods and attributes of values that live only within a call."""

_STREAMS = ("read", "readline", "readlines", "write", "writelines", "flush", "buffer")
"""Attributes of the standard streams that a script may use."""

_CACHED = functools.lru_cache(abs)
_INNER = (
    *(io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.FileIO, io.BytesIO),
    types.FrameType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.CodeType,
    types.TracebackType,
    types.FunctionType,
    types.MethodType,
    types.ModuleType,
    *(_CACHED, _CACHED.cache_info(), __future__.annotations, {}.keys()),
    *(Counter, BaseException, AttributeError, NameError, StopIteration),
    *(UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError),
    property,
    type,
)

REACHING = (frozenset(name for one in _INNER for name in dir(one)) - METHODS) | {
    *_STREAMS,
    *_UNLISTED,
    *("close", "obj", "name", "path", "code", "object", "register", "eof"),
}
"""Attributes that lead from a value to a frame, a function's parts, a namespace or a file, and `close`,
which a generator calls when it is freed. A program may not give its own attributes such a name: the name
would then be allowed on those values too."""

SPECIAL_METHODS = frozenset({"__init__"})
"""Special methods that a class may define: others run without a visible call, with any values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Names that one kind of program may use."""

    builtins: frozenset[str]
    modules: Mapping[str, frozenset[str]]
    methods: frozenset[str]

    @property
    def reserved(self) -> frozenset[str]:
        """Names that a program may not bind: each has one fixed meaning."""
        return frozenset(dir(builtins)) - self.builtins | {"self", "isinstance"}


CALLS = Allowed(builtins=BUILTINS, modules=MODULES, methods=METHODS)
"""Names for a program whose functions are called."""

SCRIPTS = Allowed(
    builtins=BUILTINS | {"input", "exit", "quit"},
    modules={
        **MODULES,
        "sys": frozenset({"maxsize", "stdin", "stdout", "stderr", "exit", "setrecursionlimit"}),
    },
    methods=METHODS.union(_STREAMS),
)
"""Names for a script: its streams and settings are renewed for each input."""
