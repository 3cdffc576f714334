"""The compared parts of a problem, without the rest, so that whole sets fit in memory."""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from coding_model_project.data.governance import Role, role
from coding_model_project.data.training.samples import drop_docstring
from coding_model_project.grading.literals import syntax_tree
from coding_model_project.types import Asserts, Call, Problem, Stdin, Test

Hashes = NDArray[np.uint64]
Words = NDArray[np.uint32]
"""Hashes of words."""

MIN_SHAPE_NODES = 40
"""Minimum number of syntax nodes; equal solutions with fewer may be chance."""

_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"(?<![.!?:\n] )(?<!^)\b[A-Z][a-z]+\b", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A problem to compare. `cases` and `shape` hash its tests and its gold solution's structure."""

    id: str
    source: str
    split: str
    role: Role
    sha256: str
    """The hash of the unchanged statement."""
    words: Words
    """The words of the statement's prose, in lower case and without signs."""
    names: Words
    """Names of persons among them, and variables."""
    stems: Words
    """The stems of the other words, each once."""
    cases: Hashes
    shape: str | None = None

    @property
    def skeleton(self) -> Words:
        """The words, with all variables and names of persons replaced by one word."""
        return np.where(np.isin(self.words, self.names), 0, self.words)


def document(problem: Problem) -> Document:
    """Return the compared parts of a problem."""
    source = intern(problem.id.split("/")[0])
    statement = prose(problem.asked)
    words = words_of(statement)
    distinct = dict.fromkeys(words)
    names = names_of(statement, distinct)
    texts = {text for test in problem.tests for text in _cases(test)}
    cases = sorted({hashed_64(text.encode("utf-8", "replace")) for text in texts})
    return Document(
        id=problem.id,
        source=source,
        split=intern(problem.split),
        role=role(source, problem.split),
        sha256=hashlib.sha256(problem.statement.encode("utf-8", "replace")).hexdigest(),
        words=hashed(words),
        names=hashed(sorted(names)),
        # In the statement's order: a set's would round the scores differently in every process.
        stems=hashed(list(dict.fromkeys(_stem(word) for word in distinct if word not in names))),
        cases=np.array(cases, dtype=np.uint64),
        shape=shape(problem.gold[0]) if problem.gold and problem.language == "python" else None,
    )


def words_of(statement: str) -> list[str]:
    """Return the words of a text, in lower case and without signs."""
    return _WORD.findall(statement.lower())


def hashed(words: Sequence[str]) -> Words:
    """Return the words' hashes, which are equal in every process."""
    return np.fromiter(map(_hash, words), np.uint32, len(words))


@lru_cache(1 << 16)
def _hash(word: str) -> int:
    return crc32(word.encode())


def names_of(statement: str, words: Iterable[str]) -> set[str]:
    """Return the words that renaming changes: names of persons, and single letters."""
    names = {name.lower() for name in _NAME.findall(statement)}
    return names | {word for word in words if len(word) == 1 and word.isalpha()}


def prose(statement: str) -> str:
    """Return a statement without lines of tests, which look alike and are compared as tests."""
    lines = unicodedata.normalize("NFKC", statement).split("\n")
    return "\n".join(line for line in lines if not line.lstrip().startswith(("assert ", ">>> ")))


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    """Return a crude stem: remove plurals and verb endings."""
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "es", "ed", "s", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def shape(code: str) -> str | None:
    """Return a hash of a Python program's structure, without docstrings and comments.

    Names are numbered in order, including names of functions, since another set may ask for the same
    program by another name. Return None for programs with fewer than `MIN_SHAPE_NODES` nodes.
    """
    try:
        tree = syntax_tree(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    if len(nodes) < MIN_SHAPE_NODES:
        return None
    names: dict[str, str] = {}
    for node in nodes:
        drop_docstring(node)
        for field in ("id", "arg", "name"):
            value = getattr(node, field, None)
            if isinstance(value, str) and not (field == "id" and value in _BUILTINS):
                setattr(node, field, names.setdefault(value, f"n{len(names)}"))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


_BUILTINS = frozenset(dir(builtins))


def _cases(test: Test) -> list[str]:
    """Return a test as texts that are equal for equal cases, for any name of the function."""
    match test.input:
        case Stdin(text):
            return [f"{' '.join(text.split())}→{' '.join(str(test.expected).split())}"]
        case Call():
            return [f"{test.input.args!r}→{test.expected!r}"]
        case Asserts():
            return _assertions(test.input)


def _assertions(tests: Asserts) -> list[str]:
    """Return each assertion, with the function under test renamed to one name."""
    try:
        asserts = [
            node for node in ast.walk(syntax_tree(tests.source)) if isinstance(node, ast.Assert)
        ]
        for node in asserts:
            for name in ast.walk(node.test):
                if isinstance(name, ast.Name) and name.id in (tests.entry_point, "candidate"):
                    name.id = "f"
        return [ast.unparse(node.test) for node in asserts]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def hashed_64(content: bytes) -> int:
    """Return a hash of 64 bits, which is equal in every process."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
