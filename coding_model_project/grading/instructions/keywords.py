"""IFEval's kinds on required and forbidden words, case and language."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coding_model_project.grading.instructions.languages import language as language_of
from coding_model_project.grading.instructions.text import compares


def existence(response: str, *, keywords: Sequence[str]) -> bool:
    """Check keywords:existence: in any case, also within words."""
    return all(_found(keyword, response) for keyword in keywords)


def frequency(response: str, *, keyword: str, relation: str, frequency: int) -> bool:
    """Check keywords:frequency: in any case, also within words."""
    found = re.findall(re.escape(keyword.strip()), response, re.IGNORECASE)
    return compares(len(found), relation, frequency)


def forbidden_words(response: str, *, forbidden_words: Sequence[str]) -> bool:
    """Check keywords:forbidden_words: in any case, but only as whole words."""
    return not any(_found(word, response, edge=r"\b") for word in forbidden_words)


def _found(words: str, response: str, *, edge: str = "") -> bool:
    return re.search(edge + re.escape(words) + edge, response, re.IGNORECASE) is not None


def no_comma(response: str) -> bool:
    """Check punctuation:no_comma."""
    return "," not in response


def english_capital(response: str) -> bool:
    """Check change_case:english_capital: English, without lower-case letters."""
    return response.isupper() and language_of(response) == "en"


def english_lowercase(response: str) -> bool:
    """Check change_case:english_lowercase: English, without upper-case letters."""
    return response.islower() and language_of(response) == "en"


def response_language(response: str, *, language: str) -> bool:
    """Check language:response_language.

    A response without letters has no language and fails here; it passes the publisher's check.
    """
    return language_of(response) == language
