"""Programs for rows whose tests are Python code that calls the candidate's."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from coding_model_project.server.requests import BadRequest
from coding_model_project.server.row_fields import Row, labels_of, text_of, texts_of, within
from coding_model_project.types import Asserts

_HEADER = (
    "import math, re, sys, copy, datetime, itertools, collections, heapq, statistics, functools\n"
    "import hashlib, string\nfrom typing import *\nfrom collections import *\n"
)
"""Imports that HumanEval's solutions and tests expect."""

_PLACE = "#<INSERT>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A candidate's program, and tests that call it from another process."""

    extracted: str
    program: str
    tests: Asserts
    without_code: str = ""
    """The row's own part of the program, if any: Python that must compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Tests with the candidate's code inserted."""

    shown: str
    program: str
    language: str
    last_word: str = ""
    """Text printed after all tests have passed; empty if the language is not Python."""
    without_code: str = ""
    """The row's own part of the program, if it is Python: it must compile."""


def humaneval(row: Row, code: str, *, completes_prompt: bool) -> Apart:
    """Return a program with a function, and its `check`.

    Args:
        completes_prompt: whether the code completes the row's prompt or stands alone.

    Raises:
        BadRequest: the row lacks a field.
    """
    entry_point = text_of(row, "entry_point")
    if not all(part.isidentifier() for part in entry_point.split(".")):
        raise BadRequest(f"the row's 'entry_point' must be a name, not {entry_point[:40]!r}")
    before = f"{text_of(row, 'prompt')}\n" if completes_prompt else ""
    return Apart(
        extracted=code,
        program=f"{_HEADER}{before}{code}",
        tests=Asserts(
            source=f"{_HEADER}{text_of(row, 'test')}\ncheck({entry_point})",
            entry_point=entry_point,
        ),
        without_code=f"{_HEADER}{before}    pass\n" if completes_prompt else "",
    )


def mbpp(row: Row, code: str) -> Apart:
    """Return a program, and the row's list of assertions.

    Raises:
        BadRequest: the row lacks a field.
    """
    labels = labels_of(row)
    setup = text_of(labels, "test_setup_code") if labels.get("test_setup_code") else ""
    tests = "\n".join([setup, *texts_of(row, "test_list")])
    return Apart(extracted=f"\n{code}", program=code, tests=Asserts(source=tests))


def autoeval(row: Row, code: str, *, quoted: bool) -> Together:
    """Return test code with the candidate's code in its placeholder, or before it.

    Args:
        quoted: insert the code as a Python literal.

    Raises:
        BadRequest: the row lacks a field.
    """
    language = text_of(within(row, "labels"), "execution_language")
    tests = text_of(within(row, "test"), "code")

    def with_code(code: str) -> str:
        return tests.replace(_PLACE, code) if _PLACE in tests else f"{code}\n{tests}"

    shown = with_code(repr(code) if quoted else code)
    if language != "python":
        return Together(shown=shown, program=shown, language=language)
    word = secrets.token_hex(16)
    return Together(
        shown=shown,
        program=f"{shown}\n\nprint('\\n' + {word!r})\n",
        language=language,
        last_word=f"\n{word}\n",
        without_code=with_code("''" if quoted else "pass"),
    )
