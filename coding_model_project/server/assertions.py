"""Rows whose tests are Python that calls the candidate's: the programs made of them."""

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
"""What HumanEval's solutions and tests are written to find."""

_PLACE = "#<INSERT>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A candidate's program, and tests to call it from another process."""

    extracted: str
    program: str
    tests: Asserts
    without_code: str = ""
    """The row's own part of the program, if it has one: Python that must compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Tests with the candidate's code amid them."""

    shown: str
    program: str
    language: str
    last_word: str = ""
    """Printed once all tests have passed; empty where the language is not Python."""
    without_code: str = ""
    """The row's own part of the program, if it is Python: it must compile."""


def humaneval(row: Row, code: str, *, completes_prompt: bool) -> Apart:
    """A function and its `check`.

    Args:
        completes_prompt: whether the code completes the row's prompt; else it stands alone.

    Raises:
        BadRequest: the row lacks something.
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
    """A program and a list of assertions.

    Raises:
        BadRequest: the row lacks something.
    """
    labels = labels_of(row)
    setup = text_of(labels, "test_setup_code") if labels.get("test_setup_code") else ""
    tests = "\n".join([setup, *texts_of(row, "test_list")])
    return Apart(extracted=f"\n{code}", program=code, tests=Asserts(source=tests))


def autoeval(row: Row, code: str, *, quoted: bool) -> Together:
    """Test code with the candidate's in its place, or before it.

    Args:
        quoted: put it there as a Python literal.

    Raises:
        BadRequest: the row lacks something.
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
