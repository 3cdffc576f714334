"""Lists of words, written as text."""

from __future__ import annotations


def word_list(text: str) -> tuple[str, ...]:
    """Return the words of a text, which whitespace separates."""
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, for look-ups."""
    return frozenset(text.split())
