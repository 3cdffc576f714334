"""Programs that keep nothing between their calls, and every channel by which one could."""
# ruff: noqa: E501 - a program is best read on one line

import __future__

import functools
import heapq
import io
import itertools
import operator
import sys
from collections import Counter, OrderedDict

import pytest

from coding_model_project.sandbox.embedded.fast_path.allowed import METHODS, REACHING
from coding_model_project.sandbox.embedded.fast_path.stateless import (
    is_stateless,
    is_stateless_script,
)


@pytest.mark.parametrize(
    "source",
    [
        '"""Doubles."""\nimport math\nfrom collections import Counter\n\ndef f(x, y=2): return x * y',
        "MOD = 10**9 + 7\nINF = float('inf')\nPAIR = (1, -2)\ndef f(x): return x % MOD",
        "class Solution:\n    def f(self, x):\n        self.seen = [x]\n        return self.seen",
        "class P:\n    kind = 'p'\n    @staticmethod\n    def g(x): return x\ndef f(x): return P().g(x)",
        "from functools import lru_cache\ndef f(x):\n    @lru_cache(None)\n    def g(n): return n\n    return g(x)",
        "from typing import *\ndef f(x: List[int]) -> Optional[int]: return max(x, default=None)",
        "import math\nINF = math.inf\nMOD = 7\nBASE = MOD * 2\ndef f(x, top=INF): return min(x, top)",
        "from collections import defaultdict\ndef f(x):\n    d = defaultdict(list)\n    d[x].append(x)\n    return d",
        "def f(x):\n    return [a for a in range(x) if type(a) is int and not isinstance(a, (str, bytes))]",
        "from itertools import chain\ndef f(x): return list(chain.from_iterable([x, x]))",
        "def f(x):\n    match x:\n        case [a, *rest]: return rest\n        case {'k': v, **more}: return more\n    return 0",
        "def f(x):\n    total = 0\n    for total in walk(x): pass\n    return total\ndef walk(n):\n    yield n",
        "def f(x):\n    a = {}\n    def g(n):\n        nonlocal x\n        a[n] = x\n    return g(x)",
        "class N:\n    def __init__(self, x: 'N'): self.x = x\ndef f(x) -> N: return N(x).x",
        "from collections import Counter\ndef f(x): return isinstance(x, Counter) or Counter(x).most_common(1)",
        "def f(x): return '{:>{w}.2f} {}'.format(x, 1, w=5) + f'{x:>{5}}'",
        "from math import *\nfrom collections import *\ndef f(x): return deque([sqrt(x), Counter([x])])",
        "def f(x):\n    if type(x) in (int, float) and type(x) is not str: return x\n    return type(x) == type(1)",
        "def f(x): return x\nif __name__ == '__main__':\n    print(f(int(input())))",
        "square = lambda x: x * x\ndef f(x): return square(x)",
    ],
)
def test_functions_and_constants_keep_nothing(source):
    assert is_stateless(source.encode())


@pytest.mark.parametrize(
    "source",
    [
        "n = 0\ndef f(x):\n    global n\n    n += x\n    return n",
        "seen = []\ndef f(x): seen.append(x); return len(seen)",
        "seen = {}\ndef f(x): return seen.setdefault(0, x)",
        "def f(x, seen=[]): seen.append(x); return len(seen)",
        "def f(x, *, seen={}): return seen.setdefault(0, x)",
        "def f(x): f.n = getattr(f, 'n', 0) + 1; return f.n",
        "class P:\n    n = []\ndef f(x): P.n.append(x); return len(P.n)",
        "class P:\n    n = 0\ndef f(x): P.n += 1; return P.n",
        "class P:\n    n = 0\n    @classmethod\n    def g(c): c.n += 1\ndef f(x): return P.g()",
        "import functools\n@functools.cache\ndef f(x): return [x]",
        "import random\ndef f(x): return random.random()",
        "import sys\ndef f(x): sys.path.append(x); return len(sys.path)",
        "def f(x):\n    import os\n    return os.getpid()",
        "from itertools import count\nn = count()\ndef f(x): return next(n)",
        "import math\ndef f(x): math.n = x; return x",
        "def f(x): globals()['n'] = x",
        "def f(x): return f.__dict__.setdefault('n', x)",
        "def f(x): return __builtins__",
        "def f(x): return open('n', 'a')",
        "print('hello')\ndef f(x): return x",
        "from helpers import g\ndef f(x): return g(x)",
        "if __name__ != '__main__':\n    seen = []\ndef f(x): seen.append(x); return len(seen)",
        "class S:\n    n = 0\n    def h(self): self.n += 1; return self.n\ndef f(x): return S.h(S)",
        "class S:\n    n = 0\n    @classmethod\n    def h(self): self.n += 1\ndef f(x): return S.h()",
        "class S:\n    n = 0\ndef h(self): self.n += 1\ndef f(x): return h(type(S()))",
        "from enum import Enum\nclass C(Enum):\n    A = 1\ndef f(x): return C.A.hit()",
        "def f(x: (seen := [])): seen.append(x); return len(seen)",
        "from collections.abc import Sized\nclass P: pass\ndef f(x): Sized.register(P)",
        "from functools import partial\nclass P: pass\ndef f(x): return partial(P)",
        "if f\"{'\x7f'}\": pass\ndef f(x): return x",
        "def f(x): return 1" + " + 1" * 5000,
        "def f(x): return " + "-" * 30000 + "1",
    ],
)
def test_every_channel_is_refused(source):
    assert not is_stateless(source.encode())


REACHED = {
    "a function by a method that takes it for self": "class C:\n    def m(self): self.n = 1\n"
    "def g(): pass\ndef f(x): C.m(g)",
    "the same through cls": "class C:\n    @classmethod\n    def k(cls, h): cls.m(h)\n"
    "    def m(self): self.n = 1\ndef g(): pass\ndef f(x): C().k(g)",
    "the same through a default": "class C:\n    def m(self): self.n = 1\n"
    "    def k(self, h=m): h(g)\ndef g(m=1): pass\ndef f(x): C().k()",
    "self that is something else": "class C:\n    def m(self):\n        self = f\n        self.n = 1\n"
    "def f(x): C().m()",
    "self from a loop": "class C:\n    def m(self):\n        for self in [f]: self.n = 1\ndef f(x): C().m()",
    "self in a default": "class C:\n    def m(self):\n        def g(a=(self := f)): self.n = a\n        g()\n"
    "def f(x): C().m()",
    "self as a module": "import math as self\ndef f(x): self.n = x",
    "self of an exception": "class C:\n    def m(self):\n        try: 1 / 0\n"
    "        except ZeroDivisionError as self: pass\ndef f(x): C().m()",
    "self in a pattern": "class C:\n    def m(self):\n        match f:\n            case self: self.n = 1\ndef f(x): C().m()",
    "self of a static method": "class C:\n    @staticmethod\n    def m(self): self.n = 1\ndef f(x): C().m(f)",
    "isinstance that is not it": "class C:\n    def m(self): self.n = 1\n"
    "def isinstance(a, b): b.m(a)\ndef f(x): isinstance(f, C)",
    "a built-in function under its own name": "def g(getattr): pass\ndef f(x): getattr(f, '__dict__')['n'] = x",
    "a class by type()": "class C:\n    n = []\ndef f(x):\n    if (t := type(C())) == 1: pass\n    t.n.append(x)",
    "an attribute by its name": "from operator import attrgetter\ndef f(x): attrgetter('__dict__')(f)['n'] = x",
    "a frame": "def g():\n    yield 1\ndef f(x): g().gi_frame.f_globals['n'] = x",
    "a frame by a name of its own": "class C:\n    def m(self): self.gi_frame = self.f_globals = 1\n"
    "def g():\n    yield 1\ndef f(x): g().gi_frame.f_globals['n'] = x",
    "a frame in a pattern": "def g():\n    yield 1\ndef f(x):\n    match g():\n"
    "        case object(gi_frame=a): return a",
    "an exception's traceback": "def f(x):\n    try: 1 / 0\n    except Exception as e: e.__traceback__.tb_frame",
    "a late generator": "def g():\n    try: yield 1\n    finally: print('late')\ndef f(x):\n    a = [g()]\n    a.append(a)\n    next(a[0])",
    "an end of its own": "class C:\n    def __del__(self): print('late')\ndef f(x): C()",
    "a class's keyword": "class C(metaclass=M): pass\ndef f(x): return x",
    "a class's decorator": "def g(c): return c\n@g\nclass C: pass\ndef f(x): return x",
    "a base that is called": "class C(type('D', (), {})): pass\ndef f(x): return x",
    "an attribute in a loop": "class C: n = 0\ndef f(x):\n    for f.n in [x]: pass",
    "an attribute in a with": "def f(x):\n    with open(x) as f.n: pass",
    "a module's attribute in an import": "import math.n\ndef f(x): return x",
    "a module as a value": "import math\ndef f(x): return [math][0]",
    "names of a module that are not listed": "from functools import *\ndef f(x): return singledispatch(x)",
    "an underscore of a module": "from re import _cache\ndef f(x): return _cache",
    "a special name": "def f(x): __builtins__['n'] = x",
    "a property's function": "class C:\n    @property\n    def m(self): self.n = 1\ndef f(x): C.m.fget(f)",
    "a setter": "class C:\n    @property\n    def m(self): return 1\n    @m.setter\n    def m(self, v): f.n = v\ndef f(x): C().m = 1",
    "super with arguments": "class C:\n    def m(self): self.n = 1\nclass D(C): pass\ndef f(x): super(D, D()).m(f)",
    "a coroutine": "async def g(): pass\ndef f(x): return g()",
    "a table": "TABLE = {}\ndef f(x): TABLE[x] = 1",
    "a list in a class": "class C:\n    n: list = []\ndef f(x): C().n.append(x)",
    "an import in a class": "class C:\n    import sys\nclass D:\n    def __init__(self): self.sys = self.modules = 1\n"
    "def f(x): C().sys.modules[str(x)] = None",
    "a star that brings more": "def attrgetter(a): pass\nfrom operator import *\ndef f(x): attrgetter('__dict__')(f)['n'] = x",
    "a star that hides a built-in": "from sys import *\nclass setrecursionlimit: pass\ndef f(x): setrecursionlimit(x)",
    "a class called int": "class int:\n    def __init__(self, v): self.n = v\nBOX = int(0)\ndef f(x): BOX.n",
    "a class by its type in a comparison": "class E:\n    def __eq__(self, o): o.m(o)\nclass C:\n"
    "    def m(self): self.n = 1\ndef f(x): type(C()) == E()",
    "the same, in a container": "class E:\n    def __init__(self): self.n = 1\ndef f(x): type(x) in [E()]",
    "an annotation that runs": "class E:\n    def __getitem__(self, o): o.m(o)\nclass C:\n    def m(self): self.n = 1\n"
    "def f(x):\n    e = E()\n    def g(a: e[C]): pass",
    "a variable in an annotation": "def f(x):\n    e = [1]\n    def g(a: e[0]): pass",
    "type, by Counter.copy": "from collections import Counter\ndef f(x): return Counter.copy(int)",
    "the same by its module": "import collections\ndef f(x): return collections.Counter.copy(int)",
    "deepcopy with a memo": "from copy import deepcopy\ndef f(x): return deepcopy(x, {})",
    "a name of its own on others": "class C:\n    def register(self): pass\ndef f(x): return C().register",
    "an attribute by format": "def f(x): return '{0.__globals__}'.format(f)",
    "the same in its specification": "def f(x): return '{0:{1.__globals__}}'.format(x, f)",
    "an item by format": "def f(x): return '{0[n]}'.format(x)",
    "format of a name": "def f(x):\n    t = '{0.__globals__}'\n    return t.format(f)",
    "format as a value": "def f(x): return list(map('{0.__globals__}'.format, [f]))",
    "str.format": "def f(x): return str.format('{0.__globals__}', f)",
    "a key that a cache keeps": "class S(str):\n    def __init__(self, v): self.n = []\nimport re\ndef f(x): return re.compile(S('a')).pattern.n",
    "a type's parameter": "from typing import List\ndef f(x): return List[x]",
    "a method called property": "def h(): pass\nclass C:\n    def property(g):\n        g(h)\n        return g\n    @property\n"
    "    def m(self): self.n = []\ndef f(x): h.n.append(x)",
    "a method called int": "class C:\n    def int(s): return []\n    seen = int(0)\ndef f(x): C().seen.append(x)",
    "a stream's place": "import sys\nclass C:\n    def seek(self): pass\ndef f(x): C().seek()",
    "a type of many arguments": "def f(x): return type(*('D', (int,), {})) == int",
    "a generator's close": "class I:\n    def close(self): print('late')\ndef f(x):\n    def g(): yield from I()\n    next(g())",
    "how deep it may go": "def g(n):\n    try: return g(n + 1)\n    except RecursionError: return n\ndef f(x): return g(0)",
    "the same without a name": "def g(n):\n    try: return g(n + 1)\n    except: return n\ndef f(x): return g(0)",
    "the same among others": "def g(n):\n    try: return g(n + 1)\n    except (ValueError, Exception): return n\ndef f(x): return g(0)",
    "the same under another name": "def g(n, e=Exception):\n    try: return g(n + 1)\n    except e: return n\ndef f(x): return g(0)",
    "the same in the end": "def g(n):\n    try: g(n + 1)\n    finally: return n\ndef f(x): return g(0)",
    "the same in a loop's end": "def g(n):\n    while True:\n        try: g(n + 1)\n        finally: break\n    return n\ndef f(x): return g(0)",
    "how much memory there is": "def f(x):\n    try: return len(bytearray(x))\n    except MemoryError: return 0",
    "an error that hides the limit's": "def g(n):\n    try: g(n + 1)\n    finally: 1 // 0\ndef f(x):\n"
    "    try: g(0)\n    except ZeroDivisionError: return 1",
    "a cache's type": "from functools import lru_cache\nclass A:\n"
    "    def __init__(self): self.cache_info = self._field_defaults = 0\ndef f(x):\n    @lru_cache(None)\n"
    "    def g(): return 1\n    d = g.cache_info()._field_defaults\n    d[len(d)] = x\n    return list(d.values())",
    "a private name of others": "class A:\n    def __init__(self): self._kept = 0\ndef f(x): return x._kept",
    "memory beyond a list": "def f(x):\n    a = [0] * 9\n    def late():\n        a.clear()\n        yield x\n"
    "    a[2:4:2] = late()",
    "the same without a step": "def f(x):\n    a = [0] * 9\n    a[slice(0, 9, 2)] = map(lambda b: a.clear(), range(2))",
    "a format that is none": "def f(x): return '}'.format(x)",
    "the decimal context": "from decimal import getcontext\ndef f(x): getcontext().prec = x",
    "the interpreter's limit": "import sys\ndef f(x): sys.setrecursionlimit(x)",
}


@pytest.mark.parametrize("source", REACHED.values(), ids=REACHED)
def test_every_way_past_a_name_is_refused(source):
    assert not is_stateless(source.encode())


def cached():
    return functools.lru_cache(abs)


@pytest.mark.parametrize(
    "value",
    [
        *(cached(), cached().cache_info(), __future__.annotations, exit, {}.keys(), Counter()),
        *(iter(range(3)), reversed([]), zip(), map(abs, []), filter(None, []), enumerate([])),
        *(itertools.chain(), itertools.groupby([]), itertools.tee([])[0], itertools.count()),
        *(
            heapq.merge([]),
            operator.itemgetter(1),
            functools.cmp_to_key(cached)(1),
            OrderedDict().keys(),
        ),
        *(StopIteration(1), AttributeError(), NameError(), KeyError(), NotImplemented, Ellipsis),
        *(UnicodeDecodeError("utf-8", b"", 0, 1, ""), UnicodeEncodeError("utf-8", "", 0, 1, "")),
        *("".join, int.real, dict.fromkeys, cached, (one for one in ""), object(), range(2)),
        *(sys.__stdin__, sys.__stdin__.buffer, sys.__stdout__.buffer, io.BytesIO()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_program_gives_no_name_to_its_own_that_leads_into_another_value(value):
    names = {name for name in dir(value) if not name.startswith("__")}
    assert not names - METHODS - REACHING


def test_a_script_may_not_reach_into_its_streams():
    assert is_stateless_script(b"import sys\nprint(sys.stdin.readline())")
    for name in ("seek", "tell", "fileno", "detach", "truncate", "raw", "reconfigure"):
        source = f"import sys\nclass C:\n    def {name}(self): pass\nsys.stdout.buffer.{name}()"
        assert not is_stateless_script(source.encode())
