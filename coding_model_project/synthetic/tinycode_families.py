"""The families of tasks: their parts and how they combine.

In code, {f} {m} {s} stand for a filter, a map and a source; {g} for a generator over them; K and V for a
dictionary's key and value. Constants differ where wording differs, but two parts of one slot must not
differ by constants alone: tasks must stay distinct after constants are normalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product


class MistakeKind(StrEnum):
    """A kind of mistake. The first group applies to a part, the second to a whole program."""

    boundary = "boundary"
    operator = "operator"
    empty_input = "empty_input"
    type = "type"
    order = "order"
    duplicates = "duplicates"
    wrong_builtin = "wrong_builtin"
    off_by_one = "off_by_one"
    sign = "sign"
    case = "case"

    missing_return = "missing_return"
    syntax = "syntax"
    name_error = "name_error"
    infinite_loop = "infinite_loop"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Wrong code that replaces a part's code."""

    kind: MistakeKind
    code: str


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a task.

    `hard` adds to the task's difficulty. The easy levels (1-2) consist of parts with 0 or 1; parts with 2
    occur only above them, so demonstrations of easy tasks never contain them.
    """

    key: str
    words: str
    code: str
    mistake: Mistake | None = None
    hard: int = 0


def part(key: str, words: str, code: str, wrong: str = "", kind: str = "", hard: int = 0) -> Part:
    """Make a part with at most one mistake, as shorthand for the tables in `families`."""
    mistake = Mistake(MistakeKind(kind), wrong) if wrong else None
    return Part(key=key, words=words, code=code, mistake=mistake, hard=hard)


_NUMBER_FILTERS = (
    part("all", "", "True"),
    part("even", "even", "x % 2 == 0"),
    part("odd", "odd", "x % 2 != 0"),
    part("positive", "positive", "x > 0", "x >= 0", "boundary"),
    part("negative", "negative", "x < 0", "x <= 0", "boundary", 2),
    part("nonnegative", "non-negative", "x >= 0", "x > 0", "boundary", 2),
    part("nonzero", "nonzero", "x != 0"),
    part("most5", "at most 5", "x <= 5", "x < 5", "boundary", 2),
    part("digit", "one-digit", "-10 < x < 10", "x < 10", "sign", 2),
    part("far", "larger than 5 in size", "abs(x) > 5", "x > 5", "sign", 2),
    part("near", "smaller than 5 in size", "abs(x) < 5", "x < 5", "sign", 1),
    part("not3", "not divisible by 3", "x % 3 > 0", "x % 3 > 1", "boundary", 2),
    part("prime", "prime", "x > 1 and all(x % k for k in range(2, x))",
         "all(x % k for k in range(2, x))", "boundary", 2),
)  # fmt: skip
_NUMBER_MAPS = (
    part("id", "", "x"),
    part("square", "squares of the", "x * x", "x * 2", "operator"),
    part("double", "doubles of the", "2 * x"),
    part("abs", "sizes of the", "abs(x)", "x", "sign", 2),
    part("next", "successors of the", "x + 1"),
    part("negated", "negations of the", "-x", "x", "sign", 1),
    part("cube", "cubes of the", "x ** 3", "x * 3", "operator", 2),
    part("half", "halves of the", "x // 2", "x / 2", "type", 2),
    part("prev", "predecessors of the", "x - 1", "x - 2", "off_by_one", 1),
    part("last", "last digits of the", "abs(x) % 10", "x % 10", "sign", 2),
    part("oblong", "oblongs of the", "x * (x + 1)", "x * x + 1", "operator", 2),
)
_NUMBER_REDUCERS = (
    part("sum", "sum of", "sum({g})"),
    part("list", "list of", "[*{g}]"),
    part("max", "largest of", "max({g}, default=0)", "max({g})", "empty_input", 2),
    part("min", "smallest of", "min({g}, default=0)", "min({g})", "empty_input", 2),
    part("count", "number of", "len([*{g}])", "sum({g})", "wrong_builtin"),
    part("sorted", "sorted list of", "sorted({g})", "[*{g}]", "order", 1),
    part("distinct", "number of distinct", "len(set({g}))", "len([*{g}])", "duplicates", 2),
    part("first", "first of", "next(({g}), None)", "[*{g}][0]", "empty_input", 2),
    part("falling", "falling list of", "sorted({g}, reverse=True)", "sorted({g})", "order", 2),
    part("unique", "sorted distinct", "sorted(set({g}))", "sorted({g})", "duplicates", 2),
    part("back", "reversed list of", "[*{g}][::-1]", "[*{g}]", "order", 1),
    part("three", "first three of", "[*{g}][:3]", "[*{g}][:2]", "off_by_one", 2),
    part("dropped", "all but the first of", "[*{g}][1:]", "[*{g}][:-1]", "off_by_one", 2),
)
_NOT_OF_INTEGERS = ("negative", "digit", "nonnegative", "prime")
"""Filters that are trivial or slow on digits and ranges."""
_SOURCES = (
    part("upto", "numbers from 1 to n", "range(1, n + 1)", "range(1, n)", "off_by_one"),
    part("below", "numbers from 0 below n", "range(n)", "range(n + 1)", "off_by_one", 1),
    part("digits", "digits of n", "map(int, str(n))", "str(n)", "type", 2),
    part("bits", "binary digits of n", "map(int, bin(n)[2:])", "bin(n)[2:]", "type", 2),
    part("divisors", "divisors of n", "(k for k in range(1, n + 1) if n % k == 0)",
         "(k for k in range(1, n) if n % k == 0)", "off_by_one", 1),
)  # fmt: skip
_CHAR_FILTERS = (
    part("all", "characters", "True"),
    part("letter", "letters", "c.isalpha()", "c.isalnum()", "wrong_builtin"),
    part("digit", "digits", "c.isdigit()"),
    part("upper", "capitals", "c.isupper()", "c.isalpha()", "case", 2),
    part("lower", "small letters", "c.islower()", "c.isalpha()", "case", 1),
    part("vowel", "small vowels", "c in 'aeiou'"),
    part(
        "novowel", "characters but small vowels", "c not in 'aeiou'", "c in 'aeiou'", "operator", 2
    ),
    part("nospace", "characters but blanks", "c != ' '", "True", "boundary", 1),
)
_CHAR_MAPS = (
    part("id", "", "c"),
    part("upper", "capitalised", "c.upper()", "c.lower()", "case"),
    part("lower", "lowered", "c.lower()"),
    part("swap", "case-swapped", "c.swapcase()", "c.upper()", "case", 2),
    part("twice", "doubled", "c * 2", "c + c + c", "off_by_one", 2),
    part("code", "codes of the", "ord(c)", "c", "type", 2),
)
_CHAR_REDUCERS = (
    part("count", "number of", "len([*{g}])"),
    part("list", "list of", "[*{g}]"),
    part("sorted", "sorted list of", "sorted({g})", "[*{g}]", "order", 1),
    part("distinct", "number of distinct", "len(set({g}))", "len([*{g}])", "duplicates", 2),
    part("first", "first of", "next(({g}), None)", "[*{g}][0]", "empty_input", 2),
    part("back", "reversed list of", "[*{g}][::-1]", "[*{g}]", "order"),
    part("last", "largest of", "max({g}, default=None)", "max({g})", "empty_input", 2),
    part("unique", "sorted distinct", "sorted(set({g}))", "sorted({g})", "duplicates", 2),
)
_WORD_FILTERS = (
    part("all", "words", "True"),
    part("long", "words over 3 long", "len(w) > 3", "len(w) >= 3", "boundary"),
    part("short", "words under 4 long", "len(w) < 4", "len(w) <= 4", "boundary", 2),
    part("title", "words with a capital first", "w[0].isupper()", "w.isupper()", "case", 2),
    part("alpha", "purely alphabetic words", "w.isalpha()"),
    part("same", "palindromes", "w == w[::-1]", "w[0] == w[-1]", "boundary", 2),
    part("with", "words with an a", "'a' in w", "w[0] == 'a'", "boundary", 1),
    part("lower", "lowercase words", "w == w.lower()", "w[0].islower()", "case", 2),
)
_WORD_MAPS = (
    part("id", "", "w"),
    part("upper", "capitalised", "w.upper()"),
    part("back", "reversed", "w[::-1]", "w", "order", 1),
    part("len", "lengths of the", "len(w)"),
    part("head", "first letters of the", "w[0]", "w[1]", "off_by_one", 2),
    part("tail", "last letters of the", "w[-1]", "w[0]", "off_by_one", 2),
    part("lower", "lowered", "w.lower()", "w", "case", 1),
)
_KEYS = (
    part("self", "value", "x"),
    part("size", "size", "abs(x)", "x", "sign", 1),
    part("parity", "remainder by 2", "x % 2"),
    part("sign", "being positive", "x > 0", "x >= 0", "boundary", 1),
    part("digit", "last digit", "abs(x) % 10", "x % 10", "sign", 1),
    part("half", "half", "x // 2", "x / 2", "type", 1),
    part("square", "square", "x * x", "x * 2", "operator"),
    part("zero", "being zero", "x == 0", "x", "type", 1),
)
_GROUPED = (
    part("count", "counts", "d[K] = d.get(K, 0) + 1", "d[K] = d.get(K, 1) + 1", "off_by_one"),
    part("sum", "sums", "d[K] = d.get(K, 0) + x", "d[K] = x", "duplicates", 1),
    part(
        "squares", "sums of squares", "d[K] = d.get(K, 0) + x * x", "d[K] = x * x", "duplicates", 1
    ),
    part(
        "max",
        "largest values",
        "d[K] = max(x, d.get(K, x))",
        "d[K] = max(x, d.get(K, 0))",
        "empty_input",
        2,
    ),
    part(
        "min",
        "smallest values",
        "d[K] = min(x, d.get(K, x))",
        "d[K] = min(x, d.get(K, 0))",
        "empty_input",
        2,
    ),
    part("lists", "lists", "d[K] = d.get(K, []) + [x]", "d[K] = [x]", "duplicates", 1),
    part(
        "back",
        "reversed lists",
        "d[K] = [x] + d.get(K, [])",
        "d[K] = d.get(K, []) + [x]",
        "order",
        2,
    ),
    part("first", "first values", "d.setdefault(K, x)", "d[K] = x", "order", 2),
    part("last", "last values", "d[K] = x", "d.setdefault(K, x)", "order", 1),
)
_FINISHES = (
    part("dict", "as a dictionary", "d"),
    part("keys", "and return the sorted keys", "sorted(d)", "list(d)", "order", 1),
    part("size", "and return how many groups there are", "len(d)"),
    part("values", "and return the values", "[*d.values()]", "[*d]", "wrong_builtin", 1),
    part(
        "best",
        "and return the largest value",
        "max(d.values(), default=None)",
        "max(d.values())",
        "empty_input",
        2,
    ),
    part(
        "least",
        "and return the smallest value",
        "min(d.values(), default=None)",
        "min(d.values())",
        "empty_input",
        2,
    ),
    part("items", "and return the sorted items", "sorted(d.items())", "[*d.items()]", "order", 2),
    part("back", "and return the keys in reverse order", "[*d][::-1]", "[*d]", "order", 1),
)
_ALGORITHMS = (
    part("prefix", "running sums of",
         "r = []\n    for x in xs:\n        r.append(x + (r[-1] if r else 0))",
         "r = []\n    for x in xs:\n        r.append(x + r[-1])", "empty_input", 2),
    part("peaks", "running maxima of",
         "r = []\n    for x in xs:\n        r.append(max([x] + r))",
         "r = []\n    for x in xs:\n        r.append(min([x] + r))", "wrong_builtin", 2),
    part("steps", "differences of neighbours in", "r = [b - a for a, b in zip(xs, xs[1:])]",
         "r = [a - b for a, b in zip(xs, xs[1:])]", "sign", 1),
    part("pairs", "sums of neighbours in", "r = [a + b for a, b in zip(xs, xs[1:])]",
         "r = [a + b for a, b in zip(xs, xs)]", "off_by_one", 1),
    part("dedupe", "values without repeats in order of",
         "r = []\n    for x in xs:\n        if x not in r:\n            r.append(x)",
         "r = sorted(set(xs))", "order", 2),
    part("second", "second largest value, if any, of", "r = sorted(set(xs))[-2:-1]",
         "r = sorted(xs)[-2:-1]", "duplicates", 2),
    part("rotate", "left rotation by one of", "r = xs[1:] + xs[:1]", "r = xs[1:] + xs[0]", "type", 1),
    part("runs", "run lengths of",
         "r = []\n    for i, x in enumerate(xs):\n        if i and x == xs[i - 1]:\n"
         "            r[-1] += 1\n        else:\n            r.append(1)",
         "r = []\n    for i, x in enumerate(xs):\n        if x == xs[i - 1]:\n"
         "            r[-1] += 1\n        else:\n            r.append(1)", "empty_input", 2),
    part("gcd", "running greatest common divisors of",
         "r = []\n    for x in xs:\n        a = r[-1] if r else 0\n        while x:\n"
         "            a, x = x, a % x\n        r.append(abs(a))",
         "r = []\n    for x in xs:\n        a = r[-1] if r else 0\n        while x:\n"
         "            a, x = x, a % x\n        r.append(a)", "sign", 2),
    part("depth", "bracket depths, where a positive number opens and others close, of",
         "r = [0]\n    for x in xs:\n        r.append(r[-1] + 1 if x > 0 else r[-1] - 1)",
         "r = [0]\n    for x in xs:\n        r.append(r[-1] + 1 if x >= 0 else r[-1] - 1)",
         "boundary", 2),
)  # fmt: skip
_POSTS = (
    part("list", "the", "r"),
    part("sum", "the sum of the", "sum(r)"),
    part("len", "the number of", "len(r)"),
    part("max", "the largest of the", "max(r, default=0)", "max(r)", "empty_input", 2),
    part("sorted", "the sorted", "sorted(r)", "r", "order", 1),
    part("back", "the reversed", "r[::-1]", "r", "order", 1),
)


@dataclass(frozen=True, slots=True)
class Composition:
    """A task before phrasing: its parts, in slots, and how they make a program."""

    family: str
    argument: str
    """The function's parameter: xs (list of int), n (int) or s (str)."""
    parts: tuple[Part, ...]
    what: str
    """The result in words, completing "returns …"."""

    @property
    def key(self) -> str:
        return f"{self.family}:" + ".".join(p.key for p in self.parts)

    def body(self, codes: tuple[str, ...] | None = None) -> str:
        """Return the function's body, with the parts' own code, or `codes` for each part."""
        return _BODIES[self.family](codes or tuple(p.code for p in self.parts))


def _generator(mapped: str, variable: str, source: str, kept: str) -> str:
    condition = "" if kept == "True" else f" if {kept}"
    return f"({mapped} for {variable} in {source}{condition})"


def _reduce(reducer: str, generator: str) -> str:
    return "return " + reducer.replace("({g})", generator).replace("{g}", generator)


_BODIES = {
    "lists": lambda c: _reduce(c[2], _generator(c[1], "x", "xs", c[0])),
    "integers": lambda c: _reduce(c[3], _generator(c[2], "x", c[0], c[1])),
    "characters": lambda c: _reduce(c[2], _generator(c[1], "c", "s", c[0])),
    "words": lambda c: _reduce(c[2], _generator(c[1], "w", "s.split()", c[0])),
    "groups": lambda c: (
        f"d = {{}}\n    for x in xs:\n        {c[1].replace('K', c[0])}\n    return {c[2]}"
    ),
    "algorithms": lambda c: (
        ("" if c[0] == "True" else f"xs = [x for x in xs if {c[0]}]\n    ")
        + f"{c[1]}\n    return {c[2]}"
    ),
}


def compositions() -> Iterator[Composition]:
    """Yield all compositions, in a fixed order."""
    for parts in product(_NUMBER_FILTERS, _NUMBER_MAPS, _NUMBER_REDUCERS):
        f, m, r = parts
        yield Composition("lists", "xs", parts, _words("the", r, "the", m, f, "numbers in xs"))
    numbers = tuple(f for f in _NUMBER_FILTERS if f.key not in _NOT_OF_INTEGERS)
    for parts in product(_SOURCES, numbers, _NUMBER_MAPS[:8], _NUMBER_REDUCERS[:8]):
        s, f, m, r = parts
        yield Composition("integers", "n", parts, _words("the", r, "the", m, f, "ones of the", s))
    for parts in product(_CHAR_FILTERS, _CHAR_MAPS, _CHAR_REDUCERS):
        f, m, r = parts
        yield Composition("characters", "s", parts, _words("the", r, "the", m, f, "in s"))
    for parts in product(_WORD_FILTERS, _WORD_MAPS, _CHAR_REDUCERS):
        f, m, r = parts
        yield Composition("words", "s", parts, _words("the", r, "the", m, f, "in s"))
    for parts in product(_KEYS, _GROUPED, _FINISHES):
        k, v, e = parts
        what = _words("the", v, "of the numbers in xs grouped by", k, e)
        yield Composition("groups", "xs", parts, what)
    for parts in product(_NUMBER_FILTERS, _ALGORITHMS, _POSTS):
        f, a, p = parts
        yield Composition("algorithms", "xs", parts, _words(p, a, "the", f, "numbers in xs"))


def _words(*pieces: str | Part) -> str:
    texts = (piece.words if isinstance(piece, Part) else piece for piece in pieces)
    return " ".join(text for text in texts if text)
