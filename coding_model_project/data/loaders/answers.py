"""Final answers, in any form that data sets use."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from coding_model_project.data.loaders.base import Unusable
from coding_model_project.data.loaders.values import decoded_of, looks_like_code
from coding_model_project.grading.maths.final_answer import final_answer
from coding_model_project.grading.wellformed import acts
from coding_model_project.row_readers import shown

NESTED = (
    "unit_tests", "test_cases", "hidden_tests", "tests", "test_list", "cases", "input_output",
    "verification_info", "verifier_metadata", "info", "reward_model", "reward_spec", "ground_truth",
)  # fmt: skip
"""Keys of objects that hold the tests or the answer, the innermost first."""

_LONGEST_ANSWER = 1000
"""Maximum length of a final answer, in characters. Longer ones are solutions, or programs."""


def answer_of(value: Any, field: str) -> str:
    """Return a final answer: text, a number, the end of a solution, or a list of one of these.

    Raises:
        Unusable: it is empty or of another form; says what was seen.
    """
    decoded = decoded_of(value)
    if isinstance(value, str) and not _is_list_of_one_text(decoded):
        decoded = value
    match decoded:
        case bool() | None:
            raise Unusable(f"field '{field}' is {shown(decoded)}, not an answer")
        case int():
            return str(decoded)
        case Decimal():
            return format(decoded.normalize(), "f")
        case float():
            return str(int(decoded)) if decoded.is_integer() else repr(decoded)
        case str():
            return _final(decoded.strip(), field)
        case [one]:
            return answer_of(one, field)
        case list() if decoded and all(one == decoded[0] for one in decoded):
            return answer_of(decoded[0], field)
        case Mapping():
            inner = next((decoded[name] for name in NESTED if decoded.get(name)), None)
            if inner is not None:
                return answer_of(inner, field)
    raise Unusable(f"field '{field}' is {shown(decoded)}, not one answer")


def _final(text: str, field: str) -> str:
    if not text:
        raise Unusable("the answer is empty")
    if "####" in text or "\\boxed" in text:
        found = final_answer(text)
        text = found.text if found is not None else text
    if len(text) > _LONGEST_ANSWER or looks_like_code(text) or _is_program(text):
        raise Unusable(f"field '{field}' is {shown(text)}, not a final answer")
    return text


def _is_program(text: str) -> bool:
    """Return whether a text of several lines is a Python program that does something."""
    if "\n" not in text:
        return False
    try:
        return any(map(acts, ast.parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_list_of_one_text(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)
