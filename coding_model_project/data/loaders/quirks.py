"""Quirks of public sets that no column says: functions that prepare a row for the table.

A prepared row has further columns, whose names begin with `_`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.data.loaders.cases import tests_of
from coding_model_project.data.loaders.prompts import prompt_of
from coding_model_project.data.loaders.rows import programs_of
from coding_model_project.data.loaders.safe_pickle import HostilePickle, decode
from coding_model_project.grading.maths.final_answer import AnswerRule, final_answer
from coding_model_project.sandbox.embedded.languages import cpp
from coding_model_project.types import Checker, Protocol, Stdin


def codecontests(row: Row, _part: Part) -> Row:
    if row.get("input_file") or row.get("output_file"):
        raise Unusable("reads or writes files")
    return row


_DOES_MORE = re.compile(
    r"\binf\s*\.|readDouble|readReal|doubleCompare|\bf?abs\s*\(|\b(upper|lower)Case|\bto(upper|lower)\b|"
    r"\bsort\s*\(|\b(multi|unordered_)?(set|map)\s*<|\btransform\s*\(|quitp|_points",
)
"""Signs of a checker that judges more than the equality of tokens: it reads the test's input, compares
numbers by a tolerance, ignores case or order, or gives points."""


def codecontests_plus(row: Row, _part: Part) -> Row:
    statement, title, source = text(row, "description"), row.get("title"), row.get("checker")
    checker = None
    if isinstance(source, str) and source.strip() and _DOES_MORE.search(_uncommented(source)):
        if cpp.find() is None:
            raise Unusable("needs its checker program: install g++ with static libraries")
        if "testlib.h" in source and not cpp.has_testlib():
            raise Unusable(f"needs its checker program: set {cpp.TESTLIB} to the path of testlib.h")
        checker = Checker(source=source, language="cpp")
    titled = f"{title}\n\n{statement}" if isinstance(title, str) and title else statement
    return {**row, "_statement": titled, "checker": checker}


def _uncommented(source: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)


def codeforces(row: Row, _part: Part) -> Row:
    if row.get("input_mode") not in (None, "stdio"):
        raise Unusable("reads or writes files")
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


def with_config(row: Row, part: Part) -> Row:
    return {**row, "_config": part.config or "any"}


_EURUS_END = "Write Python code to solve the problem."
"""The start of the instructions at the end of Eurus's prompts, which ours replace."""


def eurus(row: Row, _part: Part) -> Row:
    prompt = prompt_of(row["prompt"], "prompt")
    last = prompt.turns[-1].content if prompt.turns else prompt.text
    return {**row, "prompt": last.split(_EURUS_END)[0].strip()}


_SYNTHETIC_LEAD = "Solve the following coding problem using the programming language"
_SYNTHETIC_END = "Now solve the problem and return the code."
"""The fixed text around the statement in Prime Intellect's prompts, which ours replace."""


def _prime_intellect(tasks: Mapping[str, str], row: Row, _part: Part) -> Row:
    kind = tasks.get(str(row.get("task_type")))
    if kind is None:
        raise Unusable(f"task type {row.get('task_type')!r}; judged are {', '.join(tasks)}")
    prompt = prompt_of(row.get("prompt"), "prompt").text
    first, newline, rest = prompt.partition("\n")
    statement = rest if newline and first.startswith(_SYNTHETIC_LEAD) else prompt
    return {
        **row,
        "prompt": statement.strip().removesuffix(_SYNTHETIC_END).strip(),
        "_kind": kind,
    }


synthetic_1 = partial(_prime_intellect, {"verifiable_code": "code"})
synthetic_2 = partial(
    _prime_intellect,
    {"verifiable_code": "code", "prime_rl_code": "code", "verifiable_math": "math"},
)


def taco(row: Row, _part: Part) -> Row:
    if str(row.get("picture_num") or "0").strip() not in ("", "0", "0.0"):
        raise Unusable("the statement refers to an image")
    return row


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


def _unpacked(row: Row, column: str) -> Row:
    packed = row[column]
    if not isinstance(packed, str) or packed.lstrip().startswith("["):
        return row
    try:
        return {**row, column: decode(packed)}
    except HostilePickle as error:
        raise Unusable(f"field '{column}': {error}") from error


def livecodebench(row: Row, _part: Part) -> Row:
    return _unpacked(row, "private_test_cases")


_JUDGED = """

import sys

_texts = (open(name).read() for name in sys.argv[1:4])
sys.exit(0 if output_judging_function(*_texts) else 1)
"""


def hardtests(row: Row, _part: Part) -> Row:
    if row.get("starter_code"):
        raise Unusable("its programs are functions, and its tests standard input")
    judge = (row.get("test_cases_kit") or {}).get("output_judging_function")
    checker = Checker(source=f"{judge.strip()}{_JUDGED}") if judge and judge.strip() else None
    return {**_unpacked(row, "test_cases"), "checker": checker}


def hardtests_problem(row: Row, _part: Part) -> Row:
    """Return a row of HardTests' problems without most of its solutions, of which some have hundreds."""
    content = re.sub(r"^\[problemUrl\]:.*\n?", "", row["question_content"] or "", flags=re.M)
    statement = f"{row.get('question_title') or ''}\n\n{content}".strip()
    kept = {name: value for name, value in row.items() if not name.startswith("question_")}
    return {**kept, "_statement": statement, "solutions": programs_of(row.get("solutions"))}


def instructions(row: Row, _part: Part) -> Row:
    kinds = {"instruction_id": row["instruction_id_list"], "kwargs": row["kwargs"]}
    return {**row, "_truth": kinds}


def pairs(row: Row, _part: Part) -> Row:
    """Return a row whose inputs and outputs are two columns."""
    named = row.get("func_name") or row.get("fn_name") or None
    return {**row, "_tests": {"inputs": row["inputs"], "outputs": row["outputs"], "fn_name": named}}
