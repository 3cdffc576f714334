"""Hostile text and JSON, as programs, models, agents, clients and data sets may write it."""

import json

from hypothesis import strategies as st

from tests.tables import tables

_HOSTILE = tables("hostile")

TEXTS = st.text(max_size=20) | st.sampled_from([*_HOSTILE["texts"], "9" * 5000])
"""Texts with NUL, lone CR, separators of lines, marks and halves of surrogate pairs."""

NUMBERS = st.sampled_from([*_HOSTILE["numbers"], "9" * 5000])
"""Numbers as JSON text, also those that not every reader accepts."""

DEEP = st.sampled_from(
    tuple(f"{'[' * n}{']' * n}" for n in (90, 101, 300, 985, 1100, 9000))
    + tuple('{"a":' * n + "1" + "}" * n for n in (101, 985))
)
"""JSON nested up to and beyond the interpreter's limit."""

_ATOMS = TEXTS.map(json.dumps) | NUMBERS | DEEP | st.sampled_from(("true", "null", "[]", "{}"))


def _object(pairs: list[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{json.dumps(key)}: {value}' for key, value in pairs)}}}"


JSON_TEXTS = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(TEXTS, inner), max_size=3).map(_object)
    ),
    max_leaves=6,
)
"""Valid JSON, or nearly, with equal keys."""


def plain_values(text: st.SearchStrategy[str]) -> tuple[st.SearchStrategy, st.SearchStrategy]:
    """Return strategies of hashable values and of all plain ones, with these texts in them."""
    numbers = st.integers() | st.integers(10**30, 10**60) | st.floats() | st.complex_numbers()
    atoms = st.none() | st.booleans() | numbers | text | st.binary(max_size=8)
    hashable = st.recursive(
        atoms,
        lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
        max_leaves=4,
    )
    return hashable, st.recursive(
        hashable,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(hashable, inner, max_size=3)
            | st.sets(hashable, max_size=3)
        ),
        max_leaves=8,
    )


HASHABLE, PLAIN = plain_values(st.text())


def exactly(value: object) -> object:
    """Return a picture of a value that tells types, nan and -0.0 apart, but no order of sets."""
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, map(exactly, value)))
    if isinstance(value, (list, tuple)):
        return type(value), [exactly(item) for item in value]
    if isinstance(value, dict):
        return dict, [(exactly(key), exactly(item)) for key, item in value.items()]
    return type(value), repr(value)


BYTES = (
    JSON_TEXTS.map(str.encode)
    | st.binary(max_size=40)
    | JSON_TEXTS.map(lambda text: text.encode()[: len(text) // 2])
    | TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
)
"""JSON, damaged JSON and bytes that are not UTF-8."""


def with_field(fields: dict[str, object]) -> st.SearchStrategy[str]:
    """Return JSON objects of these fields in which one has a hostile value, perhaps as its second."""
    given = [(name, json.dumps(value)) for name, value in fields.items()]

    def changed(name: str, value: str, twice: bool) -> str:
        others = [pair for pair in given if twice or pair[0] != name]
        return _object([*others, (name, value)])

    return st.builds(changed, st.sampled_from(sorted(fields)), _ATOMS | JSON_TEXTS, st.booleans())
