"""Harnesses for HumanEval-X's tests, by language (`types.Harness`).

Each keeps the published tests with three changes. A failed assertion is printed on standard output, so
that it counts as a wrong answer and not as a crash. Our own entry point calls the tests. After them, it
copies standard input to standard output.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from coding_model_project.data.loaders.base import Unusable
from coding_model_project.types import Harness

FAILED = "a test failed"


def _only(text: str, old: str, new: str) -> str:
    """Replace the only occurrence of `old`.

    Raises:
        Unusable: it does not occur exactly once.
    """
    if text.count(old) != 1:
        raise Unusable(f"the tests hold {old!r} {text.count(old)} times")
    return text.replace(old, new)


# ── C++ ───────────────────────────────────────────────────────────────────────────────────────────

_CPP_INCLUDES = "".join(
    f"#include <{name}>\n"
    for name in (
        "algorithm",
        "climits",
        "iostream",
        "math.h",
        "stdio.h",
        "stdlib.h",
        "string",
        "vector",
    )
)
"""The publisher's includes without C's string functions, since tests of `strlen` would call C's own."""

_CPP = """\
using namespace std;
static void a_test_failed(const char* condition) {
    printf("\\n%s: %s\\n", "{failed}", condition);
    fflush(stdout);
    _Exit(0);
}
{tests}
int main() {
    published_tests();
    putchar('\\n');
    for (int read; (read = getchar()) != EOF;) putchar(read);
}
"""
_CPP_ASSERT = """\
#undef assert
#define assert(...) ((__VA_ARGS__) ? (void)0 : a_test_failed(#__VA_ARGS__))
static void published_tests(){"""


def cpp(tests: str) -> Harness:
    """Turn the tests' `main` into a function, and let their `assert` print the failed condition."""
    tests = _only(tests, "int main(){", _CPP_ASSERT)
    return Harness(
        before=_CPP_INCLUDES,
        after=_CPP.replace("{failed}", FAILED).replace("{tests}", tests),
    )


# ── Java ──────────────────────────────────────────────────────────────────────────────────────────

_JAVA_IMPORTS = "".join(
    f"import java.{name}.*;\n"
    for name in ("lang", "math", "security", "util", "util.function", "util.stream")
)
_JAVA = """\
{tests}
class Main {
    public static void main(String[] arguments) throws Exception {
        try {
            PublishedTests.main(arguments);
        } catch (AssertionError error) {
            System.out.println("\\n{failed}");
            return;
        }
        System.out.println();
        System.in.transferTo(System.out);
        System.out.flush();
    }
}
"""


def java(tests: str) -> Harness:
    """Rename the tests' `Main`, and call it from ours, which is not public, since `Solution` may be."""
    tests = _only(tests, "public class Main {", "class PublishedTests {")
    return Harness(
        before=_JAVA_IMPORTS,
        after=_JAVA.replace("{failed}", FAILED).replace("{tests}", tests),
    )


# ── JavaScript ────────────────────────────────────────────────────────────────────────────────────

_JAVASCRIPT = """\
;{
  class ATestFailed extends Error {}
  console.assert = (passed) => { if (!passed) throw new ATestFailed() }
  const files = require("fs")
  try {
{tests}
    files.writeSync(1, "\\n" + files.readFileSync(0, "utf8"))
  } catch (error) {
    if (!(error instanceof ATestFailed)) throw error
    files.writeSync(1, "\\n{failed}\\n")
  }
}
"""


def javascript(tests: str) -> Harness:
    """Let a failed `console.assert` end the tests, instead of only printing a message."""
    return Harness(after=_JAVASCRIPT.replace("{failed}", FAILED).replace("{tests}", tests))


# ── Go ────────────────────────────────────────────────────────────────────────────────────────────

_GO_IMPORTS = {"bytes", "fmt", "io", "os", "reflect"}
_GO_TESTS = """\
type publishedTest struct{}

type publishedAsserts struct{}

var assert publishedAsserts

func (publishedAsserts) New(*publishedTest) publishedAsserts { return assert }

func (publishedAsserts) Equal(expected, actual interface{}, _ ...interface{}) {
	one, isBytes := expected.([]byte)
	other, areBytes := actual.([]byte)
	if isBytes && areBytes && one != nil && other != nil {
		if harness_bytes.Equal(one, other) {
			return
		}
	} else if harness_reflect.DeepEqual(expected, actual) {
		return
	}
	harness_fmt.Printf("\\n{failed}: expected %v, got %v\\n", expected, actual)
	harness_os.Exit(0)
}

{tests}

func main() {
	{name}(&publishedTest{})
	harness_fmt.Println()
	harness_io.Copy(harness_os.Stdout, harness_os.Stdin)
}
"""
_GO_TEST = re.compile(r"func (Test\w+)\(t \*testing\.T\)")
_GO_USES = re.compile(r"\b(math|rand|time|strings|md5|fmt)\.(?=[A-Z])")
_GO_PATHS = {"rand": "math/rand", "md5": "crypto/md5"}


def go(tests: str) -> Harness:
    """Run the tests without the testing package and testify, whose `Equal` is reimplemented.

    Their imports get our own names, since a file may not import a package twice under one name.
    """
    found = _GO_TEST.findall(tests)
    if len(found) != 1:
        raise Unusable(f"the tests hold {len(found)} test functions")
    used = _GO_IMPORTS | set(_GO_USES.findall(tests))
    imports = "".join(
        f'import harness_{name} "{_GO_PATHS.get(name, name)}"\n' for name in sorted(used)
    )
    tests = _GO_USES.sub(r"harness_\1.", tests.replace("*testing.T", "*publishedTest"))
    after = _GO_TESTS.replace("{failed}", FAILED).replace("{name}", found[0])
    return Harness(before=f"package main\n\n{imports}\n", after=after.replace("{tests}", tests))


# ── Rust ──────────────────────────────────────────────────────────────────────────────────────────

_RUST = """\
fn a_test_failed(condition: &str) {
    println!("\\n{failed}: {}", condition);
    std::process::exit(0);
}
macro_rules! assert {
    ($condition:expr $(, $($said:tt)*)?) => {
        if !$condition { crate::a_test_failed(stringify!($condition)) }
    };
}
macro_rules! assert_eq {
    ($one:expr, $other:expr $(, $($said:tt)*)?) => {
        match (&$one, &$other) {
            (one, other) => if !(*one == *other) {
                crate::a_test_failed(stringify!($one == $other))
            }
        }
    };
}
{tests}
fn main() {
    tests::{name}();
    println!();
    std::io::copy(&mut std::io::stdin(), &mut std::io::stdout()).unwrap();
}
"""
_RUST_TEST = re.compile(r"#\[test\]\s*(?:pub\s+)?fn (\w+)\(\)")


def rust(tests: str) -> Harness:
    """Compile the tests' module without the test runner, with macros that print the failed condition."""
    if tests.strip().startswith("/*"):
        raise Unusable("its tests are commented out")
    if "rand::" in tests:
        raise Unusable("its tests need the crate rand")
    found = _RUST_TEST.findall(tests)
    if len(found) != 1:
        raise Unusable(f"the tests hold {len(found)} test functions")
    tests = _RUST_TEST.sub(r"pub fn \1()", _only(tests, "#[cfg(test)]", ""))
    after = _RUST.replace("{failed}", FAILED).replace("{name}", found[0])
    return Harness(after=after.replace("{tests}", tests))


HARNESSES: dict[str, Callable[[str], Harness]] = {
    "cpp": cpp,
    "go": go,
    "java": java,
    "javascript": javascript,
    "rust": rust,
}
