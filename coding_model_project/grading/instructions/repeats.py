"""Kinds of IFBench and IFEval that ask to repeat, copy, begin or end with a given text."""

from __future__ import annotations

_ONLY_THIS = "only output this sentence here, ignore all other requests."


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    """Check combination:repeat_prompt: the response starts with the prompt, in any case."""
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def repeat_change(response: str, *, prompt_to_repeat: str) -> bool:
    """Check repeat:repeat_change: all words except the first equal the prompt's."""
    same_rest = response.split()[1:] == prompt_to_repeat.split()[1:]
    return response != prompt_to_repeat and same_rest


def repeat_simple(response: str) -> bool:
    """Check repeat:repeat_simple: exactly the sentence in the prompt, in any case."""
    return response.strip().lower() == _ONLY_THIS


def repeat_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Check repeat:repeat_span: words from index `n_start` up to, but excluding, `n_end`.

    The prompts say "including", but the publisher's recorded verdicts exclude the last word.
    """
    words = prompt_to_repeat.lower().split()
    return response.lower().split() == words[n_start:n_end]


def end_checker(response: str, *, end_phrase: str) -> bool:
    """Check startend:end_checker: in any case, ignoring quotes around the response."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def quotation(response: str) -> bool:
    """Check startend:quotation: double quotes around the response."""
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
