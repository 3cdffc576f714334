"""Checks of instructions that a program can verify: kinds of IFEval, IFBench and IFEvalG.

    follows("punctuation:no_comma", {}, "No comma here.")  # True

The rules are those behind the publishers' recorded verdicts (google-research's IFEval, IFBench as of
October 2025, and IFEvalG of open-instruct), including weak ones: a text without bullets follows
"format:sub-bullets". They differ only where those rules crash, draw at random or need a downloaded model;
such checks document it.

No check executes any part of a response, and each takes time linear in its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coding_model_project.errors import UngradableError
from coding_model_project.grading.instructions.kinds import TABLE, Kind, kind_named, read_arguments
from coding_model_project.grading.instructions.tokens import UnreadableResponse

KINDS: frozenset[str] = frozenset(TABLE)
"""All kinds, by their publishers' names."""

MAX_CHARS = 500_000
"""Maximum length of a response; a longer one follows no instruction. It keeps checks fast, and no model's
answer is that long."""


def check_arguments(kind: str, arguments: Mapping[str, Any]) -> None:
    """Validate an instruction before judging responses by it. Arguments that are None count as absent.

    Raises:
        DataError: the kind is unknown, or an argument is missing, unknown or wrong.
    """
    read_arguments(kind, arguments)


def follows(kind: str, arguments: Mapping[str, Any], response: str) -> bool:
    """Return whether the response strictly follows the instruction. A blank response never does.

    Args:
        kind: one of `KINDS`.
        arguments: see `check_arguments`.
        response: a model's answer.

    Raises:
        DataError: see `check_arguments`.
        NotInstalledError: the kind needs a library that only the extra "instructions" installs.
        UngradableError: the check timed out because this machine is overloaded.
    """
    return _follows(kind_named(kind), read_arguments(kind, arguments), response)


def follows_loosely(kind: str, arguments: Mapping[str, Any], response: str) -> bool:
    """Return whether any of the response's eight variants follows the instruction.

    The variants omit the first line, the last line, both or neither, each with and without asterisks, so
    that "Sure, here it is:" or bold type does not fail a response. Arguments and errors: see `follows`.
    """
    found, read = kind_named(kind), read_arguments(kind, arguments)
    return any(_follows(found, read, variant) for variant in dict.fromkeys(_variants(response)))


def _follows(kind: Kind, arguments: Mapping[str, Any], response: str) -> bool:
    if len(response) > MAX_CHARS or not response.strip():
        return False
    try:
        return kind.check(response, **arguments)
    except UnreadableResponse:
        return False
    except TimeoutError as error:  # NLTK limits each of its patterns to five seconds
        raise UngradableError(
            "NLTK timed out on a response; the machine is overloaded: lower the number of workers"
        ) from error


def _variants(response: str) -> Iterator[str]:
    if len(response) > MAX_CHARS:
        return
    lines = response.split("\n")
    shorter = ("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))
    for variant in (response, *shorter):
        yield variant
        yield variant.replace("*", "")
