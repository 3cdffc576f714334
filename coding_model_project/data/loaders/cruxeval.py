"""CRUXEval: predict the value of a short function, or an input for a given value. Test only."""

from __future__ import annotations

import ast
from functools import partial

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.types import Predicted, Prediction

_TASKS = {
    Predicted.output: "Work out step by step what `f` returns there. It may have bugs; what counts is "
    "what it really returns.",
    Predicted.input: "Find an input for which `f` returns that value. Any such input will do.",
}
_FORM = {
    Predicted.output: "with a literal in the place of ?? (no calls, no operators)",
    Predicted.input: "with your input in the place of ??",
}


def _prepared(of: Predicted, row: Row, _part: Part) -> Row:
    program, given, output = (text(row, name) for name in ("code", "input", "output"))
    try:
        returned = ast.literal_eval(output)
    except (ValueError, SyntaxError) as error:
        raise Unusable("field 'output' is not a literal") from error
    assertion = f"f({given}) == ??" if of is Predicted.output else f"f(??) == {output}"
    statement = (
        f"```python\n{program}\n\nassert {assertion}\n```\n\n{_TASKS[of]} Then write the whole "
        f"assertion, {_FORM[of]}, between [ANSWER] and [/ANSWER]."
    )
    return {
        **row,
        "_statement": statement,
        "_prediction": Prediction(of=of, program=program, output=returned),
        "_gold": f"[ANSWER]\nassert f({given}) == {output}\n[/ANSWER]",
    }


output = partial(_prepared, Predicted.output)
input = partial(_prepared, Predicted.input)
