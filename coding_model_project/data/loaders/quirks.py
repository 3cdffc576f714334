"""Quirks of public sets that no column says: functions that prepare a row for the table.

A prepared row has further columns, whose names begin with `_`.
"""

from __future__ import annotations

import re
from functools import partial

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.data.loaders.cases import tests_of
from coding_model_project.data.loaders.rows import programs_of
from coding_model_project.grading.maths.final_answer import AnswerRule, final_answer
from coding_model_project.sandbox.embedded.languages import cpp
from coding_model_project.types import Checker, Protocol, Stdin

_DOES_MORE = re.compile(
    r"\binf\s*\.|readDouble|readReal|doubleCompare|\bf?abs\s*\(|\b(upper|lower)Case|\bto(upper|lower)\b|"
    r"\bsort\s*\(|\b(multi|unordered_)?(set|map)\s*<|\btransform\s*\(|quitp|_points",
)
"""Signs of a checker that judges more than the equality of tokens: it reads the test's input, compares
numbers by a tolerance, ignores case or order, or gives points."""


def codecontests_plus(row: Row, _part: Part) -> Row:
    source, checker = row.get("checker"), None
    if isinstance(source, str) and source.strip() and _DOES_MORE.search(_uncommented(source)):
        if isinstance(cpp.find("cpp"), str):
            raise Unusable("needs its checker program: install g++ with static libraries")
        if "testlib.h" in source and not cpp.has_testlib():
            raise Unusable(f"needs its checker program: set {cpp.TESTLIB} to the path of testlib.h")
        checker = Checker(source=source, language="cpp")
    return {**row, "checker": checker}


def _uncommented(source: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)


def codeforces(row: Row, _part: Part) -> Row:
    sections = [text(row, "description")]
    for field, heading in (
        ("input_format", "Input"),
        ("output_format", "Output"),
        ("note", "Note"),
    ):
        content = row.get(field)
        if isinstance(content, str) and content.strip():
            sections.append(f"{heading}\n\n{content.strip()}")
    shown = tests_of(row["examples"]).tests if row.get("examples") else ()
    for test in shown:
        assert isinstance(test.input, Stdin)
        given, expected = test.input.text.strip(), str(test.expected).strip()
        sections.append(f"Example input\n\n{given}\n\nExample output\n\n{expected}")
    hidden = [
        one for one in row.get("official_tests") or () if one not in (row.get("examples") or ())
    ]
    source = row.get("generated_checker")
    return {
        **row,
        "_statement": "\n\n".join(sections),
        "_hidden": hidden,
        "_cut": None if row.get("official_tests_complete") else "official tests cut",
        "checker": Checker(source=source, protocol=Protocol.score) if source else None,
    }


def kodcode(row: Row, _part: Part) -> Row:
    info = row.get("test_info") or []
    info = info if isinstance(info, list) else [info]
    names = [one["function_name"] for one in info if one.get("function_name")]
    declared = [one["function_declaration"] for one in info if one.get("function_declaration")]
    return {
        **row,
        "_function": names[0] if len(names) == 1 else None,
        "_declared": "\n".join(declared),
    }


def _ends_in(column: str, rule: AnswerRule, what: str, row: Row, _part: Part) -> Row:
    found = final_answer(text(row, column))
    if found is None or found.rule is not rule:
        raise Unusable(f"field '{column}' has no {what}")
    return {**row, "_answer": found.text}


ends_in_hashes = partial(_ends_in, "answer", AnswerRule.hashes, "'####' line with a number")
ends_in_box = partial(_ends_in, "solution", AnswerRule.boxed, "\\boxed answer")


_JUDGED = """

import sys

_texts = (open(name).read() for name in sys.argv[1:4])
sys.exit(0 if output_judging_function(*_texts) else 1)
"""


def hardtests(row: Row, _part: Part) -> Row:
    judge = (row.get("test_cases_kit") or {}).get("output_judging_function")
    checker = Checker(source=f"{judge.strip()}{_JUDGED}") if judge and judge.strip() else None
    return {**row, "checker": checker}


def hardtests_problem(row: Row, _part: Part) -> Row:
    """Return a row of HardTests' problems without most of its solutions, of which some have hundreds."""
    return {**row, "solutions": programs_of(row.get("solutions"))}
