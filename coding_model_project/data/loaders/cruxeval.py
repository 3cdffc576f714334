"""CRUXEval: predict the value of a short function, or an input for a given value. Test only."""

from __future__ import annotations

import ast

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.types import Limits, Predicted, Prediction, Problem

LIMITS = Limits(cpu_s=3.0, wall_s=10.0)
"""Limits with the CPU time of the publisher's scorer."""

_TASKS = {
    Predicted.output: "Work out step by step what `f` returns there. It may have bugs; what counts is "
    "what it really returns.",
    Predicted.input: "Find an input for which `f` returns that value. Any such input will do.",
}
_FORM = {
    Predicted.output: "with a literal in the place of ?? (no calls, no operators)",
    Predicted.input: "with your input in the place of ??",
}


def problem(name: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row into the task of predicting its output (`cruxeval_o`) or its input."""
    of = Predicted.output if name.endswith("_o") else Predicted.input
    program, given, output = (text(row, name) for name in ("code", "input", "output"))
    try:
        returned = ast.literal_eval(output)
    except (ValueError, SyntaxError) as error:
        raise Unusable("field 'output' is not a literal") from error
    assertion = f"f({given}) == ??" if of is Predicted.output else f"f(??) == {output}"
    return Problem(
        id=f"{name}/{text(row, 'id').removeprefix('sample_')}",
        split="test",
        statement=(
            f"```python\n{program}\n\nassert {assertion}\n```\n\n{_TASKS[of]} Then write the whole "
            f"assertion, {_FORM[of]}, between [ANSWER] and [/ANSWER]."
        ),
        tests=(),
        limits=LIMITS,
        prediction=Prediction(of=of, program=program, output=returned),
        language="text",
        gold=(f"[ANSWER]\nassert f({given}) == {output}\n[/ANSWER]",),
    )
