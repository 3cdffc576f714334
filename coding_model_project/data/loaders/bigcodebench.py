"""BigCodeBench: functions that use libraries, with unittest classes that share their process. Test only.

The full and the hard set, with prompts by instruction or by a signature with docstring ("complete"). A
program runs as in the publisher's evaluation (`bigcodebench.evaluate`): the problem's imports and
signature, the candidate's program and the tests, in a module that is not `__main__`. The libraries must
be installed for the interpreter of `coding.sandbox.python`.
"""

from __future__ import annotations

from functools import partial

from coding_model_project.data.loaders.base import Part, Published, Row, text
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Harness, Limits, Problem

LIMITS = Limits(cpu_s=60.0, wall_s=240.0, memory_mb=4096)
"""Limits with the publisher's wall time."""

VERSION = "v0.1.4"

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


def problem(name: str, prompt: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row, with the text of its field `prompt` as the statement."""
    given, published = text(row, "code_prompt"), text(row, "complete_prompt")
    return Problem(
        id=f"{name}/{text(row, 'task_id').split('/')[-1]}",
        split="test",
        statement=text(row, prompt),
        tests=(),
        limits=LIMITS,
        entry_point=text(row, "entry_point"),
        harness=Harness(
            before=f"{given.rstrip()}\n{_MODULE}", after=f"\n{text(row, 'test')}{_RUNNER}"
        ),
        gold=(f"{published}\n{text(row, 'canonical_solution')}",),
    )


def _loader(hub: str, name: str, prompt: str, n_rows: int) -> TableLoader:
    folder = hub.split("/")[-1]
    return TableLoader(
        published=Published(
            name=name,
            licence="Apache-2.0",
            fields=(
                "task_id",
                "complete_prompt",
                "instruct_prompt",
                "canonical_solution",
                "code_prompt",
                "test",
                "entry_point",
            ),
            parts=(
                Part(
                    split="test",
                    files=(f"{folder}/data/{VERSION}-*.parquet", f"{folder}-{VERSION}.jsonl"),
                    n_rows=n_rows,
                    hub_split=VERSION,
                ),
            ),
            hub=hub,
            tests="a harness",
        ),
        to_problem=partial(problem, name, prompt),
    )


LOADERS = {
    f"{name}{kind}": _loader(hub, f"{name}{kind}", prompt, n_rows)
    for name, hub, n_rows in (
        ("bigcodebench", "bigcode/bigcodebench", 1140),
        ("bigcodebench_hard", "bigcode/bigcodebench-hard", 148),
    )
    for kind, prompt in (("", "instruct_prompt"), ("_complete", "complete_prompt"))
}
