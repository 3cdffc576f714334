"""The grader of predictions of a function's value, or of an input for which it returns one (CRUXEval).

A predicted output is a literal, compared on the host by Python's `==`. For a predicted input, the
sandbox calls the function with it, and the returned value is compared in the same way.

The expression that a completion predicts:

1. The text is the last one between `[ANSWER]` and `[/ANSWER]` that parses, without a fence around it;
   else the last fenced block; else the whole completion.
2. The answer is the last statement of that text. From `assert f(…) == value` or `f(…) == value` (or
   `is`), it is the requested side; otherwise the expression itself.

An output must be a literal: one that calls the function predicts nothing. An input is a call of `f`
whose arguments are built from literals, built-in types and their methods. It cannot reach the globals
of the function or the builtins, so it cannot replace functions that `f` calls.
"""

from __future__ import annotations

import ast
import re
import symtable
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from coding_model_project.errors import DataError
from coding_model_project.grading.base import GRADER_VERSION, AnswerGrader
from coding_model_project.grading.brief import shown_value
from coding_model_project.grading.extract import of_one_text
from coding_model_project.grading.fences import Fences
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import (
    Call,
    ErrorType,
    Plain,
    Predicted,
    Prediction,
    Problem,
    Test,
    TestResult,
    Verdict,
)

_ENTRY = "predicted_input_"
_DETAIL_BYTES = 500


class PredictionGrader:
    """A grader of predicted outputs and inputs.

    Args:
        execution: the grader that runs programs.
    """

    def __init__(self, execution: AnswerGrader) -> None:
        self._execution = execution

    async def grade_code(
        self, problem: Problem, code: str | None, *, extraction: str = "given"
    ) -> Verdict:
        """Judge a text by the prediction in it; the verdict's `code` is that prediction.

        Raises:
            DataError: the problem has no prediction.
            SandboxError: the sandbox failed.
        """
        prediction = problem.prediction
        if prediction is None:
            raise DataError(f"problem {problem.id} has no prediction")
        started = time.monotonic()
        found = None if code is None else answer_text(code)
        if found is None:
            return self._verdict(problem, None, None, started)
        try:
            if prediction.of is Predicted.input:
                call = predicted_input(found.text)
                verdict = await self._ran(problem, prediction, call)
                return replace(verdict, code=call, extraction=str(found.rule))
            result = _compared(prediction, predicted_output(found.text))
        except NotAnAnswer as error:
            result = TestResult(error=ErrorType.syntax_error, detail=str(error)[:_DETAIL_BYTES])
        return self._verdict(problem, found, result, started)

    async def _ran(self, problem: Problem, prediction: Prediction, call: str) -> Verdict:
        """Call the function with the predicted input, in a scope without the function's own names."""
        program = f"{prediction.program}\n\n\ndef {_ENTRY}():\n    return {call}\n"
        inner = replace(
            problem,
            tests=(Test(Call(_ENTRY), expected=prediction.output),),
            language="python",
            comparison="equal",
            entry_point=_ENTRY,
            prediction=None,
        )
        return await self._execution.grade_code(inner, program)

    def _verdict(
        self,
        problem: Problem,
        found: AnswerText | None,
        result: TestResult | None,
        started: float,
    ) -> Verdict:
        return Verdict(
            problem_id=problem.id,
            code=found.text if found else None,
            extraction=str(found.rule if found else PredictionRule.nothing),
            results=(result,) if result else (),
            n_tests=1,
            comparison="equal",
            sandbox="host",
            grader_version=GRADER_VERSION,
            judge_s=time.monotonic() - started,
        )


def _compared(prediction: Prediction, given: object) -> TestResult:
    if given == prediction.output:
        return TestResult(error=None)
    expected, got = (shown_value(one, _DETAIL_BYTES) for one in (prediction.output, given))
    return TestResult(error=ErrorType.wrong_answer, detail=f"expected {expected}, got {got}")


MAX_CHARACTERS = 20_000
"""Maximum length of an answer; the longest in CRUXEval has 200."""

FUNCTION = "f"
"""The name of the function that predictions are about."""

_MOST_TAGS = 16
"""Maximum number of `[ANSWER]` tags read, from the last one backwards."""

_OPENED, _CLOSED = "[ANSWER]", "[/ANSWER]"
_ASSERTION = re.compile(r"(?m)^[ \t]*assert\b")


class PredictionRule(StrEnum):
    """The rule that found an answer's text."""

    tagged = "answer_tags"
    block = "block"
    whole_text = "whole_text"
    nothing = "nothing"


@dataclass(frozen=True, slots=True)
class AnswerText:
    """An answer's text, and the rule that found it."""

    text: str
    rule: PredictionRule


class NotAnAnswer(Exception):
    """A text that is not a prediction; the message becomes a syntax error's detail."""


@of_one_text()
def answer_text(completion: str) -> AnswerText | None:
    """Return the text of the answer; None without one of at most `MAX_CHARACTERS`."""
    if _OPENED in completion:
        found = AnswerText(_tagged(completion), PredictionRule.tagged)
    elif block := _last_block(completion):
        found = AnswerText(block.strip(), PredictionRule.block)
    else:
        text = completion.partition(_CLOSED)[0]
        found = AnswerText(text.strip(), PredictionRule.whole_text)
    return found if 0 < len(found.text) <= MAX_CHARACTERS else None


def _tagged(completion: str) -> str:
    """Return the last text after a tag that parses, else the last non-empty one."""
    behind = completion.split(_OPENED)[1:][-_MOST_TAGS:]
    texts = [_bare(one.partition(_CLOSED)[0]) for one in behind]
    given = [text for text in texts if 0 < len(text) <= MAX_CHARACTERS]
    return next((text for text in reversed(given) if _parses(text)), given[-1] if given else "")


def _bare(text: str) -> str:
    """Return the text without a fence, back-ticks or emphasis around it."""
    return (_last_block(text) or text).strip().strip("`*").strip()


def _last_block(text: str) -> str | None:
    blocks = [one.code for one in Fences(text, "python").blocks() if one.code.strip()]
    return blocks[-1] if blocks else None


def _parses(text: str) -> bool:
    try:
        return bool(_parsed(text))
    except NotAnAnswer:
        return False


def predicted_output(text: str) -> Plain:
    """Return the value that an answer predicts.

    Raises:
        NotAnAnswer: it does not parse, or is not a literal.
    """
    try:
        return ast.literal_eval(_side(_last_expression(text), Predicted.output))
    except (ValueError, TypeError, RecursionError, MemoryError, ArithmeticError) as error:
        raise NotAnAnswer("an output is written as a literal") from error


def predicted_input(text: str) -> str:
    """Return the source of the function call that an answer predicts.

    Raises:
        NotAnAnswer: it does not parse, or contains a construct that inputs may not use.
    """
    try:
        call = ast.unparse(_side(_last_expression(text), Predicted.input))
        _check_input(call)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAnAnswer(f"not Python: {error}") from error
    return call


def _last_expression(text: str) -> ast.expr:
    try:
        statements = _parsed(text)
    except NotAnAnswer:  # prose before the assertion
        starts = [found.start() for found in _ASSERTION.finditer(text)]
        if not starts:
            raise
        statements = _parsed(text[starts[-1] :].strip())
    match statements:
        case [*_, ast.Assert(test=expression) | ast.Expr(value=expression)]:
            return expression
    raise NotAnAnswer("neither an assertion nor an expression")


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return syntax_tree(text).body
    except SyntaxError as error:
        raise NotAnAnswer(f"SyntaxError: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise NotAnAnswer(f"not Python: {error}") from error


def _side(expression: ast.expr, of: Predicted) -> ast.expr:
    """Return the requested side of `f(…) == value`, in either order; any other expression unchanged."""
    match expression:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            call, other = (left, right) if _calls_function(left) else (right, left)
            if _calls_function(call):
                return call if of is Predicted.input else other
    return expression


def _calls_function(expression: ast.expr) -> bool:
    match expression:
        case ast.Call(func=ast.Name(id=name)):
            return name == FUNCTION
    return False


_TYPES = (bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple)
_NAMES = {FUNCTION, *(one.__name__ for one in _TYPES)} | {
    "abs", "chr", "enumerate", "filter", "len", "map", "max", "min", "ord", "reversed", "round", "sorted",
    "sum", "zip",
}  # fmt: skip
_METHODS = {name for one in _TYPES for name in dir(one) if not name.startswith("_")}
_NODES = (
    ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare,
    ast.IfExp, ast.Call, ast.keyword, ast.Starred, ast.Name, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Lambda, ast.arguments, ast.arg, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
"""Allowed nodes. A generator's frame leads to the builtins, but its name is not in `_METHODS`."""


def _check_input(call: str) -> None:
    """Validate the source that will run, in which Unicode look-alikes of names are normalized.

    Raises:
        NotAnAnswer: it contains a construct that inputs may not use.
    """
    expression = ast.parse(call, mode="eval").body
    if not _calls_function(expression):
        raise NotAnAnswer(f"an input is written as {FUNCTION}(…)")
    for node in ast.walk(expression):
        if not isinstance(node, _NODES):
            raise NotAnAnswer(f"an input may not hold a {type(node).__name__}")
        if isinstance(node, ast.Attribute) and node.attr not in _METHODS:
            raise NotAnAnswer(f"an input may not use .{node.attr}")
    outside = set(_globals(symtable.symtable(call, "input", "eval")))
    if outside - _NAMES:
        raise NotAnAnswer(f"an input may not use {min(outside - _NAMES)}")


def _globals(scope: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that an expression looks up outside of its own scopes."""
    is_top = scope.get_type() == "module"
    yield from (one.get_name() for one in scope.get_symbols() if is_top or one.is_global())
    for inner in scope.get_children():
        yield from _globals(inner)
