"""HumanEval-X: HumanEval's problems in other languages, each with its tests. Test only.

Tests are code in the same language that runs in the candidate's process (`types.Harness`). The files in
`harnesses` are the whole programs, with {program} and {tests} in the places of the candidate's program
and the published tests. They change the tests in three ways: a failed assertion is printed on standard
output, so that it counts as a wrong answer and not as a crash; our own entry point calls them; after
them, standard input is copied to standard output.

A gold program is the published declaration and body. The Rust declarations import crates that only a few
solutions use. This loader removes those lines, since programs here have only the standard library.
"""

from __future__ import annotations

import re
from pathlib import Path

from coding_model_project.data.loaders.base import Part, Row, Unusable, text
from coding_model_project.types import Harness

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


def prepared(row: Row, part: Part) -> Row:
    """Return a row as the task of completing its function in the language of the part."""
    language = LANGUAGES[str(part.config)]
    prompt = text(row, "prompt")
    if language == "rust":
        prompt += _CRATES.sub("", text(row, "declaration"))
    names = _FUNCTIONS[language].findall(prompt)
    if not names:
        raise Unusable("no declaration of a function was found")
    published = text(row, "task_id").partition("/")[0]
    task = f"Complete this {published} function.\n\n```{language}\n{prompt.strip()}\n```"
    return {
        **row,
        "_statement": task,
        "_harness": harness(language, text(row, "test")),
        "_entry_point": names[-1],
        "_language": language,
        "_gold": prompt + text(row, "canonical_solution"),
    }


# ── harnesses ─────────────────────────────────────────────────────────────────────────────────────

_FOLDER = Path(__file__).parent / "harnesses"
_FILES = {
    "cpp": "harness.cpp",
    "go": "harness.go",
    "java": "Harness.java",
    "javascript": "harness.js",
    "rust": "harness.rs",
}

_CPP_ASSERT = """\
#undef assert
#define assert(...) ((__VA_ARGS__) ? (void)0 : a_test_failed(#__VA_ARGS__))
static void published_tests(){"""

_GO_IMPORTS = {"bytes", "fmt", "io", "os", "reflect"}
_GO_TEST = re.compile(r"func (Test\w+)\(t \*testing\.T\)")
_GO_USES = re.compile(r"\b(math|rand|time|strings|md5|fmt)\.(?=[A-Z])")
_GO_PATHS = {"rand": "math/rand", "md5": "crypto/md5"}

_RUST_TEST = re.compile(r"#\[test\]\s*(?:pub\s+)?fn (\w+)\(\)")


def harness(language: str, tests: str) -> Harness:
    """Return the program around a candidate's, with the published tests of a problem.

    Raises:
        Unusable: the tests have another form, or need a library.
    """
    imports = name = ""
    match language:
        case "cpp":
            # The harness includes the publisher's headers without C's string functions, since tests of
            # `strlen` would call C's own.
            tests = _replaced(tests, "int main(){", _CPP_ASSERT)
        case "java":
            # Our `Main`, which calls the tests, is not public, since `Solution` may be.
            tests = _replaced(tests, "public class Main {", "class PublishedTests {")
        case "go":
            # The tests run without the testing package and testify, whose `Equal` the harness has. Their
            # imports get our own names, since a file may not import a package twice under one name.
            name = _only_test(_GO_TEST, tests)
            used = sorted(_GO_IMPORTS | set(_GO_USES.findall(tests)))
            imports = "".join(f'import harness_{x} "{_GO_PATHS.get(x, x)}"\n' for x in used)
            tests = _GO_USES.sub(r"harness_\1.", tests.replace("*testing.T", "*publishedTest"))
        case "rust":
            if tests.strip().startswith("/*"):
                raise Unusable("its tests are commented out")
            if "rand::" in tests:
                raise Unusable("its tests need the crate rand")
            name = _only_test(_RUST_TEST, tests)
            tests = _RUST_TEST.sub(r"pub fn \1()", _replaced(tests, "#[cfg(test)]", ""))
        case _:
            pass  # JavaScript's harness lets a failed `console.assert` end the tests, which only prints
    before, _, after = (_FOLDER / _FILES[language]).read_text().partition("{program}\n")
    for field, value in (("imports", imports), ("name", name), ("tests", tests)):
        before = before.replace(f"{{{field}}}", value)
        after = after.replace(f"{{{field}}}", value)
    return Harness(before=before, after=after)


def _only_test(pattern: re.Pattern[str], tests: str) -> str:
    found = pattern.findall(tests)
    if len(found) != 1:
        raise Unusable(f"the tests hold {len(found)} test functions")
    return found[0]


def _replaced(tests: str, old: str, new: str) -> str:
    """Replace the only occurrence of `old`."""
    if tests.count(old) != 1:
        raise Unusable(f"the tests hold {old!r} {tests.count(old)} times")
    return tests.replace(old, new)
