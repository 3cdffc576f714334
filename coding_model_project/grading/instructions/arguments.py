"""The types of the arguments of instructions, which are the parameters of their checks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, TypeAdapter

from coding_model_project.grading.instructions.text import word_set

LANGUAGES = word_set("languages")
"""Codes of langdetect's languages."""


def _whole(value: object) -> object:
    """Return a number as publishers also write it, 5.0, as a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _first(value: object) -> object:
    return value[0] if isinstance(value, list | tuple) and value else value


def _known_language(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError("not a language code that langdetect knows")
    return code


Count = Annotated[int, Field(strict=True, ge=0), BeforeValidator(_whole)]
Place = Annotated[int, Field(strict=True, ge=1), BeforeValidator(_whole)]
Percentage = Annotated[float, Field(strict=True, ge=0, le=100)]
Text = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]
FirstText = Annotated[Text, BeforeValidator(_first)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
Letter = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1)]
Relation = Literal["less than", "at least"]
Language = Annotated[str, AfterValidator(_known_language)]


@cache
def arguments_of(check: Callable[..., bool]) -> dict[str, TypeAdapter[Any]]:
    """Return the arguments that a check takes, all of them required, by name."""
    hints = get_type_hints(check, include_extras=True)
    return {
        name: TypeAdapter(hint)
        for name, hint in hints.items()
        if name not in ("response", "return")
    }
