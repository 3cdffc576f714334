"""Problems whose tests share the candidate's process: verdicts, and their details."""

import sys
from dataclasses import dataclass

import pytest

from coding_model_project.data.loaders import LOADERS
from coding_model_project.data.loaders.humaneval_x import harness
from coding_model_project.errors import ConfigError
from coding_model_project.grading.cache import CachedGrader
from coding_model_project.grading.execution import ExecutionGrader
from coding_model_project.grading.harness import HarnessGrader
from coding_model_project.harbor.integrity import Accepted, NotIsolatedError, require
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded import tiers
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.types import ErrorType, Harness, Limits, Problem

LIMITS = Limits(cpu_s=10.0, wall_s=30.0)


@dataclass(frozen=True)
class Spoken:
    """Programs for `twice(x)`, in a language."""

    tests: str
    function: str
    """With @ in the place of the body's statement."""
    right: str = "return x + x;"
    wrong: str = "return x * x;"
    ends: str = ""
    fails: str = ""
    main: str = ""
    noise: str = ""


SPOKEN = {
    "cpp": Spoken(
        tests=(
            "#undef NDEBUG\n#include<assert.h>\nint main(){\n    vector<int> a={twice(2), twice(3)};\n"
            "    assert (a==vector<int>({4, 6}));\n    assert (twice(-1) == -2);\n    \n}\n"
        ),
        function="#include<vector>\nusing namespace std;\nint twice(int x){\n    @\n}\n",
        ends="exit(0);",
        fails='throw runtime_error("no");',
        main="int main() { return twice(1); }\n",
        noise='puts("here"); return x + x;',
    ),
    "java": Spoken(
        tests=(
            "public class Main {\n    public static void main(String[] args) {\n"
            "        Solution s = new Solution();\n        List<Boolean> correct = Arrays.asList(\n"
            "                s.twice(2) == 4,\n                s.twice(3) == 6\n        );\n"
            "        if (correct.contains(false)) {\n            throw new AssertionError();\n"
            "        }\n    }\n}\n"
        ),
        function="import java.util.*;\npublic class Solution {\n  public int twice(int x) {\n@\n  }\n}\n",
        ends="System.exit(0); return 0;",
        fails='throw new IllegalStateException("no");',
        noise='System.out.println("here"); return x + x;',
    ),
    "javascript": Spoken(
        tests=(
            "const testTwice = () => {\n  console.assert(twice(2) === 4)\n  console.assert(\n"
            "    JSON.stringify([twice(3)]) === JSON.stringify([6])\n  )\n}\n\ntestTwice()\n"
        ),
        function="const twice = (x) => {\n  @\n}\n",
        ends="process.exit(0)",
        fails='throw new Error("no")',
        main="console.log(twice(1))\n",
        noise='console.log("here"); return x + x',
    ),
    "go": Spoken(
        tests=(
            "func TestTwice(t *testing.T) {\n    assert := assert.New(t)\n"
            "    assert.Equal(4, Twice(2))\n    assert.Equal(math.Abs(-6), float64(Twice(3)))\n}\n"
        ),
        function='package main\n\nimport "math"\n\nvar _ = math.Pi\n\nfunc Twice(x int) int {\n\t@\n}\n',
        right="return x + x",
        wrong="return x * x",
        ends='panic("no")',
        fails='panic("no")',
        main="func main() { Twice(1) }\n",
        noise='println("here"); return x + x',
    ),
    "rust": Spoken(
        tests=(
            "\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn test_twice() {\n"
            "        assert_eq!(twice(2), 4);\n        assert!(twice(3) == 6);\n    }\n\n}\n"
        ),
        function="fn twice(x: i32) -> i32 {\n    @\n}\n",
        ends="std::process::exit(0);",
        fails='panic!("no");',
        main="fn main() { twice(1); }\n",
        noise='println!("here"); return x + x;',
    ),
}


def needs(language: str) -> None:
    try:
        toolchains.toolchain(language, tiers.strongest(Tier.rlimit, sys.executable))
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def graded(any_sandbox):
    """Judge programs by a grader of their own."""

    async def judge(problem: Problem, *programs: str):
        inner = HarnessGrader(ExecutionGrader(any_sandbox, stop_early=True))
        grader = CachedGrader(inner, bare=False)
        return [await grader.grade_code(problem, one) for one in programs]

    return judge


@pytest.mark.slow
@pytest.mark.parametrize("language", SPOKEN)
async def test_tests_as_humaneval_x_publishes_them(graded, language):
    needs(language)
    spoken = SPOKEN[language]
    problem = Problem(
        id="x/1", split="test", statement="?", tests=(), limits=LIMITS, language=language,
        harness=harness(language, spoken.tests),
    )  # fmt: skip

    def program(body: str) -> str:
        return spoken.function.replace("@", body)

    right, main, noise, wrong, ends, fails, broken = await graded(
        problem,
        program(spoken.right),
        program(spoken.right) + spoken.main,
        program(spoken.noise),
        program(spoken.wrong),
        program(spoken.ends),
        program(spoken.fails),
        program("return (("),
    )
    assert right.passed, right.results
    assert main.passed, main.results
    assert noise.passed, noise.results
    assert wrong.error is ErrorType.wrong_answer
    assert "a test failed" in wrong.results[0].detail
    assert ends.error in (ErrorType.wrong_answer, ErrorType.runtime_error)
    assert fails.error is ErrorType.runtime_error
    assert broken.error in (ErrorType.compile_error, ErrorType.syntax_error)
    assert {verdict.integrity for verdict in (right, wrong)} == {"in_process"}


PYTHON = LOADERS["bigcodebench"].to_problem(
    {
        "task_id": "BigCodeBench/7",
        "instruct_prompt": "Define twice(x), by json.",
        "complete_prompt": 'import json\n\ndef twice(x):\n    """Double it."""\n',
        "canonical_solution": "    return json.loads(str(2 * x))",
        "code_prompt": "import json\ndef twice(x):\n",
        "entry_point": "twice",
        "test": (
            "import unittest\nfrom unittest.mock import patch\n\nclass TestCases(unittest.TestCase):\n"
            "    def test_two(self):\n        self.assertEqual(twice(2), 4)\n\n"
            "    @patch('builtins.print')\n    def test_it_uses_json(self, _):\n"
            "        with patch.object(json, 'loads', return_value=9):\n"
            "            self.assertEqual(twice(2), 9)\n\n"
            "if __name__ == '__main__':\n    unittest.main()\n"
        ),
    },
    LOADERS["bigcodebench"].published.parts[0],
    0,
)


async def test_tests_as_bigcodebench_publishes_them(graded):
    demo = "if __name__ == '__main__':\n    raise SystemExit(twice(input()))\n"
    right, wrong, crashes, skips, ends, empty = await graded(
        PYTHON,
        PYTHON.gold[0] + f"\n\n{demo}",
        "def twice(x):\n    return json.loads(str(3 * x))\n",
        "def twice(x):\n    return undefined\n",
        "def twice(x):\n    import unittest\n    raise unittest.SkipTest\nTestCases = None\n",
        "def twice(x):\n    import os\n    print('ok')\n    os._exit(0)\n",
        "",
    )
    assert right.passed, right.results
    assert wrong.error is crashes.error is ErrorType.wrong_answer
    assert "test_two" in wrong.results[0].detail
    assert "test_it_uses_json" not in wrong.results[0].detail
    assert ends.error is ErrorType.wrong_answer
    assert not empty.passed
    assert skips.passed, "a skipped test is no failure where the publisher runs it, either"


async def test_no_program_passes_by_what_an_earlier_one_was_given(graded):
    says_all = "import sys\nprint(sys.stdin.read())\nraise SystemExit(3)\n"
    shown, repeated = await graded(PYTHON, says_all, "print('0' * 32)\nraise SystemExit(0)\n")
    assert shown.error is ErrorType.runtime_error
    assert repeated.error is ErrorType.wrong_answer


async def test_who_reads_the_text_can_write_it_and_training_refuses_such_verdicts(graded):
    (forged,) = await graded(
        PYTHON, "import os, sys\nprint(sys.stdin.read(), flush=True)\nos._exit(0)\n"
    )
    assert forged.passed, "the tests share the program's process: this cannot be told from a pass"
    assert forged.integrity == "in_process"
    with pytest.raises(NotIsolatedError, match="bigcodebench/7"):
        require(forged, Accepted.isolated)


async def test_a_verdict_does_not_depend_on_the_text_that_was_given(graded):
    (first,) = await graded(PYTHON, "twice = str\n")
    (second,) = await graded(PYTHON, "twice = str\n")
    assert first.results[0].detail == second.results[0].detail


async def test_a_problem_of_ones_own(graded, tmp_path):
    problem = Problem(
        id="mine/1", split="test", statement="?", tests=(),
        harness=Harness(after="assert f(1) == 2\nprint(input())"),
    )  # fmt: skip
    right, wrong = await graded(problem, "f = lambda x: x + 1", "f = lambda x: x")
    assert right.passed
    assert wrong.error is ErrorType.runtime_error
