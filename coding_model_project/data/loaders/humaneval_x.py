"""HumanEval-X: HumanEval's problems in other languages, each with its tests. Test only.

Tests are code in the same language that runs in the candidate's process (`humaneval_x_harnesses`). A gold
program is the published declaration and body. The Rust declarations import crates that only a few
solutions use. This loader removes those lines, since programs here have only the standard library.
"""

from __future__ import annotations

import re

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.data.loaders.humaneval_x_harnesses import HARNESSES
from coding_model_project.types import Limits, Problem

LIMITS = Limits(cpu_s=10.0, wall_s=30.0)

LANGUAGES = {"cpp": "cpp", "go": "go", "java": "java", "js": "javascript", "rust": "rust"}
"""Published names of the supported languages, with ours."""

_CRATES = re.compile(r"^use (?:rand::Rng|regex::Regex|md5);\n", re.M)
_FUNCTIONS = {
    "cpp": re.compile(r"^\w[\w:<>,&* ]*[ &*>](\w+)\s*\([^()]*\)\s*\{", re.M),
    "go": re.compile(r"func\s+(\w+)\s*\("),
    "java": re.compile(r"\b(\w+)\s*\([^()]*\)[\w\s,]*\{"),
    "javascript": re.compile(r"const\s+(\w+)\s*="),
    "rust": re.compile(r"fn\s+(\w+)\s*[(<]"),
}
"""Patterns of function names; the last match in a declaration is the function to write."""


def problem(language: str, row: Row, _part: Part, _index: int) -> Problem:
    """Convert a row into the task of completing its function in a language."""
    prompt = text(row, "prompt")
    if language == "rust":
        prompt += _CRATES.sub("", text(row, "declaration"))
    names = _FUNCTIONS[language].findall(prompt)
    if not names:
        raise Unusable("no declaration of a function was found")
    published, _, number = text(row, "task_id").partition("/")
    return Problem(
        id=f"humaneval_x_{_PUBLISHED[language]}/{number}",
        split="test",
        statement=f"Complete this {published} function.\n\n```{language}\n{prompt.strip()}\n```",
        tests=(),
        limits=LIMITS,
        harness=HARNESSES[language](text(row, "test")),
        entry_point=names[-1],
        language=language,
        gold=(prompt + text(row, "canonical_solution"),),
    )


_PUBLISHED = {language: name for name, language in LANGUAGES.items()}
