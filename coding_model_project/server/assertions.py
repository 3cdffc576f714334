"""Rows whose tests are Python that calls the candidate's: the programs made of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coding_model_project.server.requests import BadRequest
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Tests with the candidate's code amid them."""

    shown: str
    program: str
    language: str
    last_word: str
    """Printed once all tests have passed; empty where the language is not Python."""


def humaneval(row: Mapping[str, Any], code: str, head: str | None) -> Apart:
    """A function and its `check`.

    Args:
        head: stands before the code; None for the row's prompt, which the code completes.

    Raises:
        BadRequest: the row lacks something.
    """
    try:
        before = f"{row['prompt']}\n" if head is None else head
        tests = f"{_HEADER}{row['test']}\ncheck({row['entry_point']})"
        return Apart(
            extracted=code,
            program=f"{_HEADER}{before}{code}",
            tests=Asserts(source=tests, entry_point=str(row["entry_point"])),
        )
    except KeyError as error:
        raise BadRequest(f"the row lacks {error}") from error


def mbpp(row: Mapping[str, Any], code: str) -> Apart:
    """A program and a list of assertions.

    Raises:
        BadRequest: the row lacks something.
    """
    try:
        setup = (row.get("labels") or {}).get("test_setup_code") or ""
        tests = "\n".join([setup, *row["test_list"]])
    except (KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"the row lacks {error}") from error
    return Apart(extracted=f"\n{code}", program=code, tests=Asserts(source=tests))


def autoeval(row: Mapping[str, Any], code: str, *, quoted: bool) -> Together:
    """Test code with the candidate's in its place, or before it.

    Args:
        quoted: put it there as a Python literal.

    Raises:
        BadRequest: the row lacks something.
    """
    try:
        language, tests = str(row["labels"]["execution_language"]), str(row["test"]["code"])
    except (KeyError, TypeError) as error:
        raise BadRequest(f"the row lacks {error}") from error
    inserted = repr(code) if quoted else code
    shown = tests.replace(_PLACE, inserted) if _PLACE in tests else f"{inserted}\n{tests}"
    if language != "python":
        return Together(shown=shown, program=shown, language=language, last_word="")
    word = secrets.token_hex(16)
    program = f"{shown}\n\nprint('\\n' + {word!r})\n"
    return Together(shown=shown, program=program, language=language, last_word=f"\n{word}\n")
