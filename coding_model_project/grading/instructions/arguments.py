"""The types of the arguments of instructions, which are the parameters of their checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from coding_model_project.grading.instructions.text import word_set

LANGUAGES = word_set("languages")
"""Codes of langdetect's languages."""


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


Count = Annotated[int, whole()]
Place = Annotated[int, whole(1)]
Percentage = Annotated[float, Argument("a number from 0 to 100", _percentage)]
Text = Annotated[str, Argument("a string that is not blank", _text)]
FirstText = Annotated[
    str, Argument("a string that is not blank, or a list that starts with one", _first_text)
]
Texts = Annotated[Sequence[str], Argument("a list of strings that are not blank", _texts)]
Letter = Annotated[str, Argument("a single character", _letter)]
Relation = Annotated[str, one_of(("less than", "at least"), '"less than" or "at least"')]
Language = Annotated[str, one_of(LANGUAGES, "a language code that langdetect knows")]


@cache
def arguments_of(check: Callable[..., bool]) -> dict[str, Argument]:
    """Return the arguments that a check takes, all of them required, by name."""
    hints = get_type_hints(check, include_extras=True)
    return {
        name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")
    }
