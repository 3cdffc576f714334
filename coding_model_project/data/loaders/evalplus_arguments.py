"""Restoration of types that JSON lacks in arguments of MBPP+: tuples, sets, complex numbers.

A row's assertions call the function with the original arguments. A list in an input becomes a tuple if
all assertions have a tuple at that position, at every depth; the same holds for sets, and for numbers
stored as text. All but nine of the 378 tasks thus get the same types as in EvalPlus
(`mbpp_deserialize_inputs` of evalplus 0.3.1); the nine have their own example here.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence, ValuesView
from functools import reduce
from typing import Any

from coding_model_project.data.loaders.base import Unusable
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Plain

_AT_ANY_DEPTH: Any = reduce(lambda inner, _: (inner,), range(50), (0,))

_CONTAINERS = (list, tuple, set, ValuesView)

_EXAMPLES: dict[str, list[Any]] = {
    "Mbpp/98": [[0]],
    "Mbpp/104": [[[""]]],
    "Mbpp/124": [0.0, 0j],
    "Mbpp/140": [[[0]]],
    "Mbpp/145": [[0]],
    "Mbpp/252": [0j],
    "Mbpp/580": [_AT_ANY_DEPTH],
    "Mbpp/596": [([0],)],
    "Mbpp/791": [_AT_ANY_DEPTH],
}
"""Example arguments for tasks whose assertions have other types than EvalPlus's calls."""


def typed(
    task: str, assertions: str, function: str, inputs: Sequence[Sequence[Plain]]
) -> list[list[Plain]]:
    """Return the inputs of a task with the types that its function expects.

    Raises:
        Unusable: the assertions do not call the function.
    """
    example = _EXAMPLES.get(task)
    calls = [example] if example is not None else _calls(assertions, function)
    n = max(map(len, inputs), default=0)
    examples = [[call[i] for call in calls if i < len(call)] for i in range(n)]
    return [
        [_typed(arg, known) for arg, known in zip(args, examples, strict=False)] for args in inputs
    ]


def _calls(assertions: str, function: str) -> list[list[Any]]:
    """Return the arguments of each call of a function."""
    try:
        calls = [
            [_value(arg) for arg in node.args]
            for node in ast.walk(syntax_tree(assertions))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == function
        ]
    except SyntaxError as error:
        raise Unusable(f"field 'assertion' does not parse: {error}") from error
    if not calls:
        raise Unusable(f"field 'assertion': no call of {function}")
    return calls


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        make = {"set": set, "tuple": tuple, "list": list}.get(node.func.id)
        if make is not None:
            return make(_value(node.args[0]))
    try:
        return ast.literal_eval(node)
    except ValueError:  # an expression such as 14*14, which is not a container and so irrelevant
        return None


def _typed(value: Any, examples: Sequence[Any]) -> Any:
    """Return a value with the types that examples have at its position; unchanged without any."""
    kinds = set(map(type, examples))
    match value:
        case _ if not kinds:
            return value
        case list():
            inner = _inside(examples)
            items = [_typed(item, inner) for item in value]
            if set in kinds:  # {} is a dict; if both types occur, it means the empty set
                return set(items) if items or dict not in kinds else {}
            return tuple(items) if tuple in kinds and list not in kinds else items
        case dict():
            inner = _inside(examples)
            return {key: _typed(item, inner) for key, item in value.items()}
        case str() if str not in kinds and complex in kinds:
            return complex(value)
        case str() if str not in kinds and float in kinds:
            return float(value)
    return value


def _inside(examples: Sequence[Any]) -> list[Any]:
    """Return the values in the containers of the examples."""
    containers = [one.values() if isinstance(one, dict) else one for one in examples]
    return [item for one in containers if isinstance(one, _CONTAINERS) for item in one]
