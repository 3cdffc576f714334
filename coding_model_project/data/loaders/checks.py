"""The last step from a row to a problem: setting aside what no tests can judge."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from coding_model_project.data.loaders.base import Unusable
from coding_model_project.grading import fences
from coding_model_project.sandbox.embedded.languages.toolchains import EMBEDDED
from coding_model_project.types import Asserts, GradedBy, Problem, Stdin

_ANY_ANSWER = re.compile(
    r"(print|output|find|return|report)\s+any\b|any (one )?of (them|these)\b|"
    r"(multiple|several|many|more than one) (possible |valid |correct |optimal )*"
    r"(answers?|solutions?|ways)[^.]{0,60}\bany\b",
    re.I,
)
_ANY_ORDER = re.compile(
    r"\b(print|output|return|report)\b[^.]{0,80}\bin (any|arbitrary) order\b|"
    r"\border of (the )?(output|answers?|results?)\b[^.]{0,40}\b(not|n't) matter",
    re.I,
)
_INTERACTIVE = re.compile(
    r"\binteractive (problem|task|judge|grader|library|program)|\binteract(ive)? with the (judge|"
    r"grader|jury|interactor|system)|\bthe interactor\b|Tags:\s*\[[^\]]*'interactive'",
    re.I,
)
_ANY_CASE = re.compile(
    r"\b(print|output|letters?|characters?|answers?|words?|strings?|verdict)\b[^.\n]{0,90}"
    r"\bin (any|either|arbitrary) (letter |character )?(case|register)\b|"
    r"\b(answer|output|checker|judge)\w*\b[^.\n]{0,60}\bcase[- ]insensitive\b|"
    r"\bcase of (the )?(letters|output|answer)\b[^.\n]{0,40}\b(not|n't) matter",
    re.I,
)
ANY_CASE = "any_case"
"""The comparison of standard output that ignores the case of letters."""

_SPOKEN = {
    *("en", "english", "zh", "cn", "chinese", "fr", "de", "es", "ru", "ja", "ko", "multilingual")
}


def language_of(value: object) -> str:
    """Return our name of a programming language; a natural language and nothing mean Python.

    Raises:
        Unusable: its programs cannot be judged here.
    """
    word = fences.language_of(str(value or ""))
    if not word or word in _SPOKEN:
        return "python"
    if word not in ("python", *EMBEDDED, "text"):
        raise Unusable(f"programs in {value}, which is not judged here")
    return word


def checked(problem: Problem, *, tolerant: bool = False) -> Problem:
    """Return a problem that its tests can judge, with the comparison that its statement asks for.

    Args:
        tolerant: whether several right outputs are ignored, as in a benchmark's own scores.

    Raises:
        Unusable: the tests cannot judge it.
    """
    statement = problem.statement
    if not statement.strip():
        raise Unusable("the statement is empty")
    if "<image>" in statement:
        raise Unusable("the statement refers to an image")
    if problem.graded_by is not GradedBy.tests:
        return problem
    if not problem.hidden_tests:
        raise Unusable("no hidden tests")
    if any(isinstance(test.input, Asserts) for test in problem.tests):
        return problem
    if not tolerant and problem.checker is None:
        refuse_many_outputs(statement, problem.tags)
    on_stdin = all(isinstance(test.input, Stdin) for test in problem.tests)
    if not tolerant and on_stdin and problem.comparison == "tokens" and _ANY_CASE.search(statement):
        return replace(problem, comparison=ANY_CASE)
    return problem


def refuse_many_outputs(statement: str, tags: Iterable[str] = ()) -> None:
    """Raise if, by the statement's words, several outputs are right or a judge answers the program.

    Raises:
        Unusable: stored outputs cannot judge it.
    """
    if _INTERACTIVE.search(statement) or "interactive" in {tag.lower() for tag in tags}:
        raise Unusable("an interactive problem, whose judge answers the program")
    if found := _ANY_ANSWER.search(statement) or _ANY_ORDER.search(statement):
        words = " ".join(found.group().split())
        raise Unusable(f'needs a checker: the statement says "{words[:120]}"')
