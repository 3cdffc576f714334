"""The inputs of a problem's tests, with what they may see of one another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from coding_model_project.types import Asserts, Call, Isolation, Plain, Test, TestInput

_GUESSED_BELOW = 10
"""A whole number closer to 0 is guessed as easily as remembered."""

_GUESSED_CHARACTERS = 4
"""So is an output of one word that is shorter, such as YES or 12."""

_MOST_CHARACTERS = 1 << 20
"""Of one process's inputs. Looking through more would cost more than a new process."""


def inputs_of(tests: Sequence[Test], isolation: Isolation) -> list[TestInput]:
    """Return the tests' inputs, marked for the sandbox.

    Asserts of a problem whose tests share their state continue those before them. A call or a standard
    input is marked as `apart` if its expected answer occurs in the inputs before it, back to the last one
    that is apart: a process that was given these could answer by them (`sandbox.embedded.fast_path`).
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
    """All values that a process was given, at every depth, and the words they are written in."""

    def __init__(self) -> None:
        self._values: set[object] = set()
        self._texts: list[str | bytes] = []
        self._in_words: list[str] = []
        self._characters = 0

    def add(self, given: Plain) -> None:
        for value in _inner_values(given):
            if isinstance(value, str | bytes):
                self._texts.append(value)
            else:
                self._values.add(_key(value))
        words = f" {' '.join(_words(given))} "
        self._in_words.append(words)
        self._characters += len(words)

    def holds(self, expected: Plain, is_guessed: Callable[[Plain], bool]) -> bool:
        """Return true if an answer is among them and not easily guessed, or if they are too many.

        It is there as a value, as a part of a text, or as words in a row: [1, 2] in [0, 1, 2] or "0 1 2".
        """
        if self._characters > _MOST_CHARACTERS:
            return True
        if is_guessed(expected):
            return False
        words = " ".join(_words(expected))
        if not is_guessed(words) and any(f" {words} " in one for one in self._in_words):
            return True
        if isinstance(expected, str | bytes):
            part = expected.strip()
            return any(type(one) is type(part) and part in one for one in self._texts)  # type: ignore[operator]
        return _key(expected) in self._values


def _inner_values(value: Plain) -> Iterator[Plain]:
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _inner_values(key)
            yield from _inner_values(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _inner_values(item)


_DECIMAL_BITS = 10_000
"""Of a whole number that is written in decimal: Python limits its digits, and it takes long."""

_WORD = re.compile(r"""[^\s,;:()\[\]{}"']+""")


def _words(value: Plain) -> Iterator[str]:
    """A value as a program might read or print it; equal numbers give equal words."""
    for one in _inner_values(value):
        match one:
            case str() | bytes():
                text = one if isinstance(one, str) else one.decode("latin-1")
                yield from map(_word, _WORD.findall(text))
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
    """The same for values of which one is easily made of the other: what is inside, in any order."""
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
    """Of a program that prints its answer."""
    words = str(value).split()
    return len(words) < 2 and len("".join(words)) < _GUESSED_CHARACTERS
