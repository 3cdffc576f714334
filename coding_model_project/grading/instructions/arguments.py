"""Readers of the arguments of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coding_model_project.grading.instructions.languages import LANGUAGES


@dataclass(frozen=True, slots=True)
class Argument:
    """A type of argument.

    Args:
        expected: its description in messages.
        read: a function that converts the value for checks; returns None if it is invalid.
    """

    expected: str
    read: Callable[[object], Any]


def whole(minimum: int = 0, maximum: int | None = None) -> Argument:
    """Return the type of a whole number, which publishers also write as 5.0."""

    def read(value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            return None
        number = int(value)
        return number if minimum <= number and (maximum is None or number <= maximum) else None

    return Argument(f"a whole number of at least {minimum}", read)


def _percentage(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 100 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _first_text(value: object) -> str | None:
    return _text(value[0] if isinstance(value, list | tuple) and value else value)


def _letter(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) == 1 else None


def _texts(value: object) -> tuple[str, ...] | None:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return None
    texts = tuple(value)
    return texts if texts and all(map(_text, texts)) else None


def one_of(choices: Iterable[str], expected: str) -> Argument:
    """Return the type of a string that is one of `choices`."""
    known = frozenset(choices)
    return Argument(
        expected, lambda value: value if isinstance(value, str) and value in known else None
    )


COUNT = whole()
PLACE = whole(1)
PERCENTAGE = Argument("a number from 0 to 100", _percentage)
TEXT = Argument("a string that is not blank", _text)
FIRST_TEXT = Argument("a string that is not blank, or a list that starts with one", _first_text)
TEXTS = Argument("a list of strings that are not blank", _texts)
LETTER = Argument("a single character", _letter)
RELATION = one_of(("less than", "at least"), '"less than" or "at least"')
LANGUAGE = one_of(LANGUAGES, "a language code that langdetect knows")


def in_order(low: str, high: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Return a rule that two arguments are in order; the rule returns an error text or None."""

    def wrong(given: Mapping[str, Any]) -> str | None:
        if given[low] <= given[high]:
            return None
        return f"{low}={given[low]} is more than {high}={given[high]}"

    return wrong
