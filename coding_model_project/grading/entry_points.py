"""Selection of the program that a problem's tests run, among several in an answer."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable

from coding_model_project.types import Asserts, Call, Problem, Stdin

_READS = {
    "python": r"\binput\s*\(|\bstdin\b(?!\s*=[^=])|\bopen\s*\(\s*0\b|\bfileinput\b|/dev/stdin"
    r"|\bos\.read\s*\(",
    "cpp": r"\bmain\s*\(",
    "javascript": r"\bstdin\b|\breadline\b|\breadFileSync\b",
    "java": r"\bvoid\s+main\s*\(",
    "go": r"\bfunc\s+main\s*\(",
    "rust": r"\bfn\s+main\s*\(",
}
"""Patterns of programs that read standard input, by language; Bash has too many ways to do so."""

_CALLED = re.compile(r"\b([A-Za-z_]\w*)[ \t]*\(")


_DEFINITIONS = {
    "cpp": r"\b{name}\s*\([^;{{}}]{{0,400}}\)\s*(?:const\s*)?\{{",
    "java": r"\b{name}\s*\([^;{{}}]{{0,400}}\)[^;{{}}]{{0,100}}\{{",
    "javascript": r"\bfunction\s+{name}\b|\b{name}\s*=[^=]",
    "go": r"\bfunc\s+{name}\b",
    "rust": r"\bfn\s+{name}\b",
}
"""Patterns of programs that define a function, by language; lengths are bounded to stay linear."""


def is_entry_point(name: str) -> bool:
    """Return whether tests can find a function by a name: `add`, `Solution.add` or `Solution().add`."""
    return all(part.removesuffix("()").isidentifier() for part in name.split("."))


def fits(code: str, problem: Problem) -> bool:
    """Return whether code defines a name that tests call, or reads standard input if they write it."""
    if problem.language in _DEFINITIONS and problem.entry_point and problem.harness:
        definition = _DEFINITIONS[problem.language].format(name=re.escape(problem.entry_point))
        return re.search(definition, code) is not None
    if any(isinstance(test.input, Stdin) for test in problem.tests):
        reads = _READS.get(problem.language)
        return reads is None or re.search(reads, code) is not None
    return any(_defines(code, name) for name in _names(problem))


def _names(problem: Problem) -> Iterable[str]:
    """Return the functions and classes that the tests appear to call, except builtins."""
    names = {problem.entry_point} if problem.entry_point else set()
    for test in problem.tests:
        match test.input:
            case Call(function=name):
                names.add(name)
            case Asserts(entry_point=str(name)):
                names.add(name)
            case Asserts(source=source):
                called = _CALLED.findall(source)
                names.update(name for name in called if not hasattr(builtins, name))
            case _:
                pass
    return names


def _defines(code: str, name: str) -> bool:
    owner, _, method = name.replace("()", "").rpartition(".")
    if owner:
        owner = owner.partition(".")[0]
        return re.search(rf"^class[ \t]+{re.escape(owner)}\b", code, re.M) is not None
    name = re.escape(method)
    if re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*[:=]", code, re.M):
        return True
    in_solution = rf"^[ \t]+(?:async[ \t]+)?def[ \t]+{name}\b"
    return "class Solution" in code and re.search(in_solution, code, re.M) is not None
