"""Marking of test inputs that may share a process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from coding_model_project.codec import members
from coding_model_project.types import Asserts, Call, Isolation, Plain, Test, TestInput

_GUESSED_BELOW = 10
"""Whole numbers closer to 0 than this are guessed as easily as remembered."""

_GUESSED_CHARACTERS = 4
"""One-word outputs shorter than this, such as YES or 12, are guessed as easily as remembered."""

_MOST_CHARACTERS = 1 << 20
"""Maximum length of one process's inputs; searching more would cost more than a new process."""


def inputs_of(tests: Sequence[Test], isolation: Isolation) -> list[TestInput]:
    """Return the tests' inputs, marked for the sandbox.

    If tests share their state, each assert continues the one before it. A call or a standard input is
    marked as `apart` if its expected answer occurs in an earlier input since the last one marked so: a
    process that received that input could take the answer from it (`sandbox.embedded.fast_path`).
    """
    marked: list[TestInput] = []
    given = _Given()
    for test in tests:
        one = test.input
        if isinstance(one, Asserts):
            before = bool(marked) and isinstance(marked[-1], Asserts)
            one = replace(one, continues=before and isolation is Isolation.shared)
        else:
            is_call = isinstance(one, Call)
            expected = test.expected if is_call else str(test.expected)
            if given.holds(expected, _is_guessed if is_call else _is_guessed_output):
                one, given = replace(one, apart=True), _Given()
            given.add(one.args if isinstance(one, Call) else one.text)
        marked.append(one)
    return marked


class _Given:
    """All values that a process received, at every depth, and their words.

    A look-up checks an answer word by word and leaf by leaf, up to the first that was never received. A
    full search happens only if all were, in any order, so marking takes time proportional to the inputs.
    """

    def __init__(self) -> None:
        self._values: set[object] = set()
        self._leaves: set[object] = set()
        self._texts = _Texts()
        self._bytes: list[bytes] = []
        self._words: set[str] = set()
        self._neighbours: set[tuple[str, str]] = set()
        self._in_words = _Texts()
        self._characters = 0

    def add(self, given: Plain) -> None:
        for value in _inner_values(given):
            if not isinstance(value, _CONTAINERS):
                self._leaves.add(value)
            if isinstance(value, str):
                self._texts.add(value)
            elif isinstance(value, bytes):
                self._bytes.append(value)
            else:
                self._values.add(_key(value))
        words = list(_words(given))
        self._words.update(words)
        self._neighbours.update(pairwise(words))
        in_words = f" {' '.join(words)} "
        self._in_words.add(in_words)
        self._characters += len(in_words)

    def holds(self, expected: Plain, is_guessed: Callable[[Plain], bool]) -> bool:
        """Return whether an answer occurs and is not easily guessed, or there is too much to search.

        It occurs as a value, as part of a text, or as adjacent words: [1, 2] in [0, 1, 2] or "0 1 2".
        """
        if self._characters > _MOST_CHARACTERS:
            return True
        if is_guessed(expected):
            return False
        if self._holds_words(expected, is_guessed):
            return True
        if isinstance(expected, str):
            return expected.strip() in self._texts
        if isinstance(expected, bytes):
            return any(expected.strip() in one for one in self._bytes)
        inside = (one for one in _inner_values(expected) if not isinstance(one, _CONTAINERS))
        return all(leaf in self._leaves for leaf in inside) and _key(expected) in self._values

    def _holds_words(self, expected: Plain, is_guessed: Callable[[Plain], bool]) -> bool:
        words: list[str] = []
        for word in _words(expected):
            if word not in self._words or (words and (words[-1], word) not in self._neighbours):
                return False
            words.append(word)
        text = " ".join(words)
        return not is_guessed(text) and f" {text} " in self._in_words


_CONTAINERS = (list, tuple, set, frozenset, dict)
_BETWEEN = "\0"
_GRAM = 3


class _Texts:
    """Texts that are searched as one, after a check of all their trigrams.

    Joined pieces double in length, so that each text is copied only a few times.
    """

    def __init__(self) -> None:
        self._all: set[str] = set()
        self._joined: list[str] = []
        self._parts: set[str] = set()

    def add(self, text: str) -> None:
        if text in self._all:
            return
        self._all.add(text)
        self._parts.update(text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1))
        self._joined.append(text)
        while len(self._joined) > 1 and len(self._joined[-2]) <= len(self._joined[-1]):
            last = self._joined.pop()
            self._joined[-1] += _BETWEEN + last

    def __contains__(self, part: str) -> bool:
        """Return whether any text contains the part."""
        if any(part[at : at + _GRAM] not in self._parts for at in range(len(part) - _GRAM + 1)):
            return False
        among = self._all if _BETWEEN in part else self._joined
        return any(part in one for one in among)


def _inner_values(value: Plain) -> Iterator[Plain]:
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _inner_values(key)
            yield from _inner_values(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in members(value) if isinstance(value, set | frozenset) else value:
            yield from _inner_values(item)


_DECIMAL_BITS = 10_000
"""Maximum size of a whole number written in decimal, which Python limits and which is slow."""

_WORD = re.compile(r"""[^\s,;:()\[\]{}"']+""")


def _words(value: Plain) -> Iterator[str]:
    """Yield the words of a value as a program might read or print it; equal numbers give equal words."""
    for one in _inner_values(value):
        match one:
            case str() | bytes():
                text = one if isinstance(one, str) else one.decode("latin-1")
                yield from (_word(found[0]) for found in _WORD.finditer(text))
            case int():
                few = one.bit_length() <= _DECIMAL_BITS
                yield str(int(one)) if few else hex(one)
            case None | float() | complex():
                yield _word(str(one))
            case _:
                pass  # a container, whose items follow


def _word(text: str) -> str:
    if "." in text:
        with suppress(ValueError):
            return f"{float(text):.6g}"
    return text.lower()


def _key(value: Plain) -> object:
    """Return a key that is equal for values easily made from each other: the content, in any order."""
    if isinstance(value, list | tuple | set | frozenset):
        return frozenset(map(_key, value))
    if isinstance(value, dict):
        return frozenset((_key(key), _key(item)) for key, item in value.items())
    return value


def _is_guessed(value: Plain) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return abs(value) < _GUESSED_BELOW and value == int(value)
    if isinstance(value, complex):
        return False
    return len(value) <= (1 if isinstance(value, str | bytes) else 0)


def _is_guessed_output(value: Plain) -> bool:
    """Return whether an answer on standard output is easily guessed."""
    words = str(value).split()
    return len(words) < 2 and len("".join(words)) < _GUESSED_CHARACTERS
