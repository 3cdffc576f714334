"""Quirks of public sets that no column says: functions that prepare a row or complete a set of the table.

A prepared row has further columns, whose names begin with `_`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from coding_model_project.data.loaders.base import Part, Place, Row, SetAside, Trail, Unusable, text
from coding_model_project.data.loaders.cases import tests_of
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.data.loaders.values import texts_of
from coding_model_project.errors import ConfigError, DownloadError
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.grading.maths import gsm8k_answer
from coding_model_project.grading.maths.final_answer import AnswerRule, final_answer
from coding_model_project.sandbox.embedded.languages import cpp
from coding_model_project.types import (
    Asserts,
    Checker,
    Harness,
    Predicted,
    Prediction,
    Problem,
    Protocol,
    Stdin,
    Test,
)

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


# ── HumanEval, MBPP, CRUXEval and BigCodeBench ────────────────────────────────────────────────────


def humaneval(row: Row, _part: Part) -> Row:
    """Prepare a row of HumanEval: functions to complete, each with one `check` of asserts.

    A program is the prompt with the body, or the whole function: the prompt's imports and helpers run
    before it, as in the publisher's harness. The tests of three problems call helpers that the prompt
    defines. The trusted tests include their own copy of these, so that a program cannot replace them.
    """
    prompt, entry_point = text(row, "prompt"), text(row, "entry_point")
    imports, helpers = _context(prompt, entry_point)
    needed = (*imports, *helpers) if helpers else ()
    checks = "\n".join((*needed, text(row, "test"), f"check({entry_point})", ""))
    return {
        **row,
        "_tests": (Test(input=Asserts(source=checks, entry_point=entry_point)),),
        "_gold": prompt + text(row, "canonical_solution"),
        "_prelude": "\n".join(filter(None, ("; ".join(imports), *helpers))),
    }


def _context(prompt: str, entry_point: str) -> tuple[list[str], list[str]]:
    """Return the prompt's imports, and its definitions other than the function to write."""
    try:
        nodes = syntax_tree(prompt).body
    except SyntaxError as error:
        raise Unusable(f"the prompt does not parse: {error}") from error
    imports = [n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom))]
    helpers = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name != entry_point]
    return [*map(ast.unparse, imports)], [*map(ast.unparse, helpers)]


_SHOWN = " Your code should pass these tests:\n\n"


def without_tests(statement: str) -> str:
    """Remove the tests from the statement of one of these problems; return any other unchanged."""
    return statement.partition(_SHOWN)[0]


def split_of(task: int) -> str:
    """Return the authors' split of a task."""
    if task <= 10:
        return "prompt"
    if task <= 510:
        return "test"
    return "validation" if task <= 600 else "train"


def mbpp(row: Row, _part: Part) -> Row:
    """Prepare a row of MBPP: short functions with three assertions each.

    Tasks are split by number, like the authors' splits. The assertions are part of the statement, since
    nothing else gives the function's name and arguments; a model trained on these tasks therefore sees
    its tests.
    """
    setup, challenge = text(row, "test_setup_code"), texts_of(row.get("challenge_test_list"))
    return _mbpp(row, text(row, "text"), setup, challenge)


def mbpp_sanitized(row: Row, _part: Part) -> Row:
    """Prepare a row of the sanitized set; `mbpp_reg` is its test split, for quick regression checks."""
    return _mbpp(row, text(row, "prompt"), "\n".join(texts_of(row.get("test_imports"))))


def _mbpp(row: Row, task: str, setup: str, challenge: tuple[str, ...] = ()) -> Row:
    asserts = texts_of(row.get("test_list"))
    entry_point = _entry_point(text(row, "code"), asserts)
    lead = f"{setup.strip()}\n" if setup.strip() else ""
    shown = "\n".join(asserts)
    sources = (f"{lead}{one}\n" for one in (*asserts, *challenge))
    return {
        **row,
        "_statement": f"{task.strip()}{_SHOWN}{shown}\n",
        "_tests": tuple(Test(Asserts(source, entry_point)) for source in sources),
        "_entry_point": entry_point,
        "_split": split_of(int(row["task_id"])),
    }


def _entry_point(gold: str, asserts: tuple[str, ...]) -> str:
    """Return the outermost function of the gold program that the first test calls."""
    try:
        defined = {
            node.name
            for node in syntax_tree(gold).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        calls = [node for node in ast.walk(syntax_tree(asserts[0])) if isinstance(node, ast.Call)]
    except (SyntaxError, IndexError) as error:
        raise Unusable(f"the solution or its first test does not parse: {error}") from error
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in defined:
            return call.func.id
    raise Unusable("the first test calls nothing that the solution defines")


_ASKED = {
    Predicted.output: "Work out step by step what `f` returns there. It may have bugs; what counts is "
    "what it really returns.",
    Predicted.input: "Find an input for which `f` returns that value. Any such input will do.",
}
_ANSWERED = {
    Predicted.output: "with a literal in the place of ?? (no calls, no operators)",
    Predicted.input: "with your input in the place of ??",
}


def _cruxeval(of: Predicted, row: Row, _part: Part) -> Row:
    """Prepare a row of CRUXEval: predict the value of a short function, or an input for a value."""
    program, given, output = (text(row, name) for name in ("code", "input", "output"))
    try:
        returned = ast.literal_eval(output)
    except (ValueError, SyntaxError) as error:
        raise Unusable("field 'output' is not a literal") from error
    assertion = f"f({given}) == ??" if of is Predicted.output else f"f(??) == {output}"
    statement = (
        f"```python\n{program}\n\nassert {assertion}\n```\n\n{_ASKED[of]} Then write the whole "
        f"assertion, {_ANSWERED[of]}, between [ANSWER] and [/ANSWER]."
    )
    return {
        **row,
        "_statement": statement,
        "_prediction": Prediction(of=of, program=program, output=returned),
        "_gold": f"[ANSWER]\nassert f({given}) == {output}\n[/ANSWER]",
    }


cruxeval_output = partial(_cruxeval, Predicted.output)
cruxeval_input = partial(_cruxeval, Predicted.input)


_MODULE = """\
    pass

__name__ = "__test__"
__import__("sys").modules["__test__"] = __import__("sys").modules["__main__"]

"""
_RUNNER = """

def _run_published_tests():
    import sys
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(TestCases).run(result)
    failed = [test.id().rpartition(".")[2] for test, _ in result.failures + result.errors]
    if failed or not result.testsRun:
        last = ""
    else:
        last = sys.__stdin__.read()
    sys.__stdout__.write(f"\\n{last or 'failed: ' + ', '.join(failed)}\\n")
    sys.__stdout__.flush()


_run_published_tests()
"""


def bigcodebench(row: Row, _part: Part) -> Row:
    """Prepare a row of BigCodeBench: functions that use libraries, with unittest classes.

    The statement is an instruction, or a signature with docstring ("complete"). A program runs as in the
    publisher's evaluation (`bigcodebench.evaluate`): the problem's imports and signature, the candidate's
    program and the tests, in a module that is not `__main__`. The libraries must be installed for the
    interpreter of `coding.sandbox.python`.
    """
    before = f"{text(row, 'code_prompt').rstrip()}\n{_MODULE}"
    after = f"\n{text(row, 'test')}{_RUNNER}"
    gold = f"{text(row, 'complete_prompt')}\n{text(row, 'canonical_solution')}"
    return {**row, "_harness": Harness(before=before, after=after), "_gold": gold}


# ── GSM8K with examples ───────────────────────────────────────────────────────────────────────────
#
# Five worked examples before each question, as lm-evaluation-harness's task `gsm8k` has it. Each question
# has others: lm-eval draws them from the train split by one generator, with its default seed, in the
# order of the test split.


_SHOTS = 5
_SEED = 1234
"""lm-eval's default of `--seed` for examples."""


def gsm8k_with_examples(
    table: TableLoader, place: Place, trail: Trail
) -> Iterator[Problem | SetAside]:
    """Yield the questions of GSM8K's test split, each with examples of its train split.

    Raises:
        ConfigError, DownloadError: the train split was not found.
    """
    rng = Random(_SEED)
    examples: list[str] = []
    for item in table.converted(place, trail):
        examples = examples or _examples(table, place, trail)
        shown = rng.sample(examples, _SHOTS)  # also for a row that is set aside, to stay in step
        if isinstance(item, Problem):
            statement = "".join(shown) + _asked(item.statement)
            item = replace(item, statement=statement, comparison=gsm8k_answer.GSM8K)
        yield item


def _examples(table: TableLoader, place: Place, trail: Trail) -> list[str]:
    train = replace(place, path=None, columns={}, split="train")
    try:
        found = list(table.converted(train, trail))
    except (ConfigError, DownloadError) as error:
        why = f": {error.__cause__}" if error.__cause__ else ""
        raise type(error)(
            f"{table.published.name}: its examples are GSM8K's train split, which was not found under "
            f"{place.data_dir} (as gsm8k/train.jsonl or main/train-*.parquet); add it "
            f"({table.published.fetch(place.data_dir)}), or pass its folder (--data-dir){why}"
        ) from error
    return [f"{_asked(p.statement)} {p.gold[0]}\n\n" for p in found if isinstance(p, Problem)]


def _asked(question: str) -> str:
    return f"Question: {question}\nAnswer:"
