"""Checks of instructions that a program can verify: IFEval's and IFBench's kinds.

    follows("punctuation:no_comma", {}, "No comma here.")  # True

The rules are those by which the publishers recorded their verdicts (google-research's IFEval, and IFBench
as of October 2025), weak ones included: a text without bullets follows "format:sub-bullets". They differ
where those rules crash, draw at random or ask for a model that must be downloaded; the checks say so.

No check runs anything of a response, and each takes time that is linear in its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coding_model_project.errors import UngradableError
from coding_model_project.grading.instructions.kinds import TABLE, Kind, kind_named, read_arguments
from coding_model_project.grading.instructions.tokens import UnreadableResponse

KINDS: frozenset[str] = frozenset(TABLE)
"""All kinds, named as their publishers name them."""

MAX_CHARS = 500_000
"""A longer response follows nothing. No model's answer is that long, and checks stay fast."""


def check_arguments(kind: str, arguments: Mapping[str, Any]) -> None:
    """Check an instruction before responses are judged by it. Arguments that are None count as absent.

    Raises:
        DataError: the kind is unknown, or an argument is missing, unknown or wrong.
    """
    read_arguments(kind, arguments)


def follows(kind: str, arguments: Mapping[str, Any], response: str) -> bool:
    """Return whether the response follows the instruction to the letter. A blank one follows nothing.

    Args:
        kind: one of `KINDS`.
        arguments: as of `check_arguments`.
        response: a model's answer.

    Raises:
        DataError: as of `check_arguments`.
        NotInstalledError: the kind needs a library that only the extra "instructions" installs.
        UngradableError: this machine is too slow, by far, to tell.
    """
    return _follows(kind_named(kind), read_arguments(kind, arguments), response)


def follows_loosely(kind: str, arguments: Mapping[str, Any], response: str) -> bool:
    """Return whether any of the response's eight variants follows the instruction.

    They leave out the first line, the last or both, each with and without asterisks, so that "Sure, here
    it is:" or bold type does not count against a response. Arguments and errors are those of `follows`.
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
    except TimeoutError as error:  # NLTK's guard of its own patterns, five seconds for each
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
