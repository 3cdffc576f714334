"""BigCodeBench: functions that use libraries, with unittest classes that share their process. Test only.

The full and the hard set, with prompts by instruction or by a signature with docstring ("complete"). A
program runs as in the publisher's evaluation (`bigcodebench.evaluate`): the problem's imports and
signature, the candidate's program and the tests, in a module that is not `__main__`. The libraries must
be installed for the interpreter of `coding.sandbox.python`.
"""

from __future__ import annotations

from coding_model_project.data.loaders.base import Part, Row, text
from coding_model_project.types import Harness

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


def prepared(row: Row, _part: Part) -> Row:
    """Return a row with its harness, and the whole gold program."""
    before = f"{text(row, 'code_prompt').rstrip()}\n{_MODULE}"
    after = f"\n{text(row, 'test')}{_RUNNER}"
    gold = f"{text(row, 'complete_prompt')}\n{text(row, 'canonical_solution')}"
    return {**row, "_harness": Harness(before=before, after=after), "_gold": gold}
