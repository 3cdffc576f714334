"""The grader of predictions (CRUXEval's two tasks).

A predicted output is a literal, compared on the host by Python's `==`. For a predicted input, the sandbox
calls the function with it, and the returned value is compared in the same way.
"""

from __future__ import annotations

import time
from dataclasses import replace

from coding_model_project.errors import DataError
from coding_model_project.grading.base import GRADER_VERSION, AnswerGrader
from coding_model_project.grading.brief import shown_value
from coding_model_project.grading.predictions.answer import (
    AnswerText,
    NotAnAnswer,
    PredictionRule,
    answer_text,
    predicted_input,
    predicted_output,
)
from coding_model_project.types import (
    Call,
    ErrorType,
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
            code=found and found.text,
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
