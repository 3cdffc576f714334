"""Requests to repeat, copy, begin or end with given text: kinds of IFBench and IFEval."""

from __future__ import annotations

_ONLY_THIS = "only output this sentence here, ignore all other requests."


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    """Check combination:repeat_prompt: the response starts with it, in any case."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def repeat_change(response: str, *, prompt_to_repeat: str) -> bool:
    """Check repeat:repeat_change: all words but the first are the prompt's."""
    same_rest = response.split()[1:] == prompt_to_repeat.split()[1:]
    return response != prompt_to_repeat and same_rest


def repeat_simple(response: str) -> bool:
    """Check repeat:repeat_simple: the sentence that the prompt names, in any case."""
    return response.strip().lower() == _ONLY_THIS


def repeat_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Check repeat:repeat_span: words from index `n_start`, and up to `n_end` without it.

    The prompts say "including", but the publisher's recorded verdicts leave the last word out.
    """
    words = prompt_to_repeat.lower().split()
    return response.lower().split() == words[n_start:n_end]


def end_checker(response: str, *, end_phrase: str) -> bool:
    """Check startend:end_checker: in any case; quotes around the response do not count."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(response: str) -> bool:
    """Check startend:quotation: double quotes around the response."""
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
