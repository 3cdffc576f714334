"""The inputs of a problem's tests, with what they may see of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from coding_model_project.types import Asserts, Call, Isolation, Plain, Test, TestInput

_GUESSED_BELOW = 10
"""A whole number closer to 0 is guessed as easily as remembered."""

_GUESSED_CHARACTERS = 4
"""So is an output of one word that is shorter, such as YES or 12."""


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
        elif isinstance(one, Call):
            if given.holds(test.expected):
                one, given = replace(one, apart=True), _Given()
            given.add(one.args)
        else:
            if given.holds_output(str(test.expected)):
                one, given = replace(one, apart=True), _Given()
            given.add_text(one.text)
        marked.append(one)
    return marked


class _Given:
    """All values that a process was given, at every depth."""

    def __init__(self) -> None:
        self._values: set[object] = set()
        self._texts: list[str | bytes] = []
        self._words = " "

    def add(self, arguments: tuple[Plain, ...]) -> None:
        for value in _inner_values(arguments):
            if isinstance(value, str | bytes):
                self._texts.append(value)
            else:
                self._values.add(_key(value))

    def holds(self, expected: Plain) -> bool:
        """Return true if a value is among them, or a text in one of them, and not easily guessed."""
        if _is_guessed(expected):
            return False
        if isinstance(expected, str | bytes):
            return any(type(one) is type(expected) and expected in one for one in self._texts)  # type: ignore[operator]
        return _key(expected) in self._values

    def add_text(self, text: str) -> None:
        self._words += f"{' '.join(text.split())} "

    def holds_output(self, expected: str) -> bool:
        """Return true if an output's words stand in a text in a row, and are not easily guessed."""
        words = expected.split()
        if len(words) < 2 and len("".join(words)) < _GUESSED_CHARACTERS:
            return False
        return f" {' '.join(words)} " in self._words


def _inner_values(value: Plain) -> Iterator[Plain]:
    yield value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _inner_values(key)
            yield from _inner_values(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _inner_values(item)


def _key(value: Plain) -> object:
    """The same for values that an answer could be compared with and pass."""
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if isinstance(value, set | frozenset):
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
