"""Rows of HumanEval, MBPP, CRUXEval and BigCodeBench, prepared for the table as in `quirks`."""

from __future__ import annotations

import ast
from functools import partial

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.data.loaders.rows import texts_of
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Harness, Predicted, Prediction, Test


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
