"""The values everything here is made of. Two ideas carry them.

1. A sandbox returns *answers* (`Execution`); only the host, which alone holds expected outputs,
   makes *verdicts* (`Verdict`).
2. "Did our machinery work?" is an exception (`errors.py`); "was the program right?" is a value.

    completion → code → Execution per test → Verdict → Reward
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum

from coding_model_project.plain import Opaque, Plain

# ── running a program ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resources of one execution. CPU time decides; the wall-clock limit only ends what waits."""

    cpu_s: float = 5.0
    wall_s: float = 15.0
    memory_mb: int = 512
    output_kb: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Untrusted source, with the files it may read (paths relative to its working directory)."""

    source: str
    language: str = "python"
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stdin:
    """Run the program as a script on this standard input; the answer is its standard output."""

    text: str
    apart: bool = False
    """As of `Call`."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call one function (or method of `Solution`) of the program; the answer is its value."""

    function: str
    args: tuple[Plain, ...] = ()
    apart: bool = False
    """Must not be answered by a process that was given other inputs (`grading.sharing`)."""


@dataclass(frozen=True, slots=True)
class Asserts:
    """Trusted test code that calls into the program from its own confined process.

    The answer is a pass or the failing line.
    """

    source: str
    entry_point: str | None = None
    continues: bool = False
    """Runs in the processes of the asserts before it, with the state that those left (`Isolation`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Run the program as a script whose arguments are the paths of these files, in this order.

    For checkers, which are trusted. The answer is standard output and the exit code.
    """

    contents: Mapping[str, str]
    """Text by the file's name, as in {"input": "1 2", "output": "3", "answer": "3"}."""


TestInput = Stdin | Call | Asserts
Input = TestInput | Files


class Status(StrEnum):
    """The end of an execution, as the machine saw it. Says nothing about right or wrong."""

    finished = "finished"
    syntax_error = "syntax_error"
    """Decided by the interpreter that would run it, before any of the program ran."""
    compile_error = "compile_error"
    raised = "raised"
    """An uncaught exception or a non-zero exit."""
    signalled = "signalled"
    cpu_timeout = "cpu_timeout"
    wall_timeout = "wall_timeout"
    memory_limit = "memory_limit"
    output_limit = "output_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One input's answer and what it cost."""

    status: Status
    stdout: str = ""
    stderr_tail: str = ""
    value: Plain | Opaque = None
    """The value a `Call` returned; None for other inputs."""
    exit_code: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_memory_mb: float | None = None


# ── problems ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Test:
    """An input and its expected answer. Only hidden tests earn reward; public ones may be shown."""

    __test__ = False  # not a pytest class

    input: TestInput
    _: KW_ONLY
    expected: Plain = None
    """Text for a `Stdin`, the value for a `Call`; an `Asserts` needs none."""
    public: bool = False


class Protocol(StrEnum):
    """The way in which a checker is called and answers."""

    testlib = "testlib"
    """`checker input output answer`; exit code 0 accepts, 1, 2 and 7 reject, 3 is its own failure."""
    score = "score"
    """`checker input answer output`; prints a number: 1 accepts, less rejects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """A program of the problem's author that judges outputs where several are right."""

    source: str
    language: str = "python"
    protocol: Protocol = Protocol.testlib


@dataclass(frozen=True, slots=True)
class Instruction:
    """A rule that a text must follow, checked by `grading.instructions`."""

    kind: str
    """Its name as IFEval and IFBench write it, such as "punctuation:no_comma"."""
    arguments: Mapping[str, Plain] = field(default_factory=dict)
    """Arguments of the kind, such as {"num_words": 300}."""


class Predicted(StrEnum):
    """The side of `f(input) == output` that a completion fills in."""

    output = "output"
    """The value that the function returns."""
    input = "input"
    """Any input for which it returns the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A function `f` and a value that it returns; a completion predicts the value or an input."""

    of: Predicted
    program: str
    """The source that defines `f`."""
    output: Plain
    """The value, compared by Python's `==`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    """The author's program around a completion's, for tests that share its process.

    `before`, the completion's program and `after` are one program. It runs the tests, and once all have
    passed it copies its standard input to standard output, as its last line.
    """

    before: str = ""
    after: str


class GradedBy(StrEnum):
    """The grader of a problem (`Problem.graded_by`)."""

    tests = "tests"
    """Runs the program of a completion."""
    math = "math"
    """Compares the final answer of a completion with `Problem.answer`."""
    instructions = "instructions"
    """Checks a completion against `Problem.instructions`."""
    prediction = "prediction"
    """Compares what a completion predicts of a function with `Problem.prediction`."""
    harness = "harness"
    """Runs the program of a completion within `Problem.harness`."""
    harbor = "harbor"
    """Runs the verifier of the Harbor task `Problem.task`."""


class Isolation(StrEnum):
    """The state that the tests of a problem see of one another."""

    per_test = "per_test"
    """Nothing: each has a process of its own, or one where no difference can be seen."""
    shared = "shared"
    """The state that the asserts before it left, as where a data set's authors use one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A task with what judges it: tests, a Harbor task, an answer, rules, a prediction or a harness.

    `id` is "source/number"; `gold` and `bad` are solutions known to pass and to fail.
    """

    id: str
    split: str
    statement: str
    tests: tuple[Test, ...]
    limits: Limits = field(default_factory=Limits)
    comparison: str = "tokens"
    """The rule for standard output (`grading.compare`), or "checker", or one for values of calls
    (`grading.value_rules`), which else compare as data."""
    atol: float = 1e-6
    """Absolute tolerance of floats, in tokens of standard output and in values of calls."""
    rtol: float = 1e-6
    """Relative tolerance of the same: a float may differ by `atol` or by this share of the expected."""
    checker: Checker | None = None
    """Judges standard output if `comparison` is "checker"."""
    isolation: Isolation = Isolation.per_test
    """Of tests that are asserts; all other tests are always on their own."""
    entry_point: str | None = None
    language: str = "python"
    difficulty: int | None = None
    date: str | None = None
    """The day of its publication, such as "2024-08-01"."""
    tags: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    task: str | None = None
    """The folder of a Harbor task, whose verifier judges in the place of tests."""
    answer: str | None = None
    """The final answer of a maths problem, which has no tests."""
    instructions: tuple[Instruction, ...] = ()
    """The rules of an instruction-following problem, which has no tests."""
    prediction: Prediction | None = None
    """The prediction to make about a function, for a problem without tests."""
    harness: Harness | None = None
    """The program that tests a completion's from within, in the place of tests."""
    base_tests: int | None = None
    """The number of hidden tests, from the first, that have a score of their own beside that of all:
    EvalPlus extends a benchmark's own tests, and reports both."""

    @classmethod
    def simple(
        cls,
        statement: str,
        *,
        tests: Iterable[Test],
        id: str | None = None,
        split: str = "train",
        limits: Limits | None = None,
        comparison: str = "tokens",
        atol: float = 1e-6,
        rtol: float = 1e-6,
        language: str = "python",
    ) -> Problem:
        """Make a problem from a statement and tests.

        Args:
            id: by default "simple/" and a digest of the statement, so that the same statement always
                has the same id.
            limits: of each test; by default 5 s of CPU, 15 s of wall time, 512 MB, 1 MB of output.
            comparison: how standard output is compared: "tokens" (by words), "lines" or "exact".
            atol: the absolute tolerance of floats, in "tokens" and in values of calls.
            rtol: the relative tolerance of the same; a float may differ by either.
            language: "python", "cpp", "javascript", "java", "go", "rust" or "bash".
        """
        import hashlib  # here, since the sandbox's processes import this module and must stay small

        digest = hashlib.sha256(statement.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return cls(
            id=id or f"simple/{digest}",
            split=split,
            statement=statement,
            tests=tuple(tests),
            limits=limits or Limits(),
            comparison=comparison,
            atol=atol,
            rtol=rtol,
            language=language,
        )

    @property
    def graded_by(self) -> GradedBy:
        """The grader that judges completions of this problem."""
        if self.task is not None:
            return GradedBy.harbor
        if self.answer is not None:
            return GradedBy.math
        if self.prediction is not None:
            return GradedBy.prediction
        if self.harness is not None:
            return GradedBy.harness
        return GradedBy.instructions if self.instructions else GradedBy.tests

    @property
    def asks_for_code(self) -> bool:
        """True where a completion holds a program, not a text."""
        return self.graded_by in (GradedBy.tests, GradedBy.harbor, GradedBy.harness)

    @property
    def hidden_tests(self) -> tuple[Test, ...]:
        """The tests that earn reward and are never shown to a model."""
        return tuple(test for test in self.tests if not test.public)

    @property
    def public_tests(self) -> tuple[Test, ...]:
        """The tests that a prompt may show."""
        return tuple(test for test in self.tests if test.public)


# ── verdicts ──────────────────────────────────────────────────────────────────────────────────────


class ErrorType(StrEnum):
    """Reasons why a program was not accepted."""

    no_code = "no_code"
    syntax_error = "syntax_error"
    compile_error = "compile_error"
    runtime_error = "runtime_error"
    timeout = "timeout"
    memory_limit = "memory_limit"
    output_limit = "output_limit"
    wrong_answer = "wrong_answer"

    @property
    def group(self) -> ErrorType:
        """The group in metrics: syntax_error, runtime_error, timeout, wrong_answer or no_code."""
        return _ERROR_GROUP.get(self, self)


_ERROR_GROUP = {
    ErrorType.compile_error: ErrorType.syntax_error,
    ErrorType.memory_limit: ErrorType.runtime_error,
    ErrorType.output_limit: ErrorType.runtime_error,
}

ERROR_GROUPS = tuple(error for error in ErrorType if error.group is error)
"""The groups metrics are kept by; with `accepted` their shares sum to 1 over graded samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """One test's outcome: no error means it passed."""

    __test__ = False  # not a pytest class

    error: ErrorType | None
    cpu_s: float = 0.0
    detail: str = ""
    """At most 2 kB: the failing line, the difference, the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of judging one completion.

    Rewards, evaluation, preference pairs, filters and repair feedback all use it.
    """

    problem_id: str
    code: str | None
    extraction: str
    """The rule that found the code (`grading.extract.Rule`)."""
    results: tuple[TestResult, ...]
    """Per test that ran, in order; fewer than `n_tests` after an early stop."""
    n_tests: int
    comparison: str
    """The rule that decided."""
    sandbox: str
    """`Sandbox.identity` of the judge that ran it."""
    grader_version: str
    isolation: Isolation = Isolation.per_test
    """The state that the tests saw of one another."""
    public: bool = False
    """Of the public tests, which a model may be told of; else of the hidden ones, which it may not."""
    integrity: str = "isolated"
    """"in_process" where the candidate's code shared a process with what judged it: a problem's harness,
    or a Harbor verifier (`harbor.integrity`)."""
    judge_s: float = 0.0
    """Wall seconds of judging; 0 for a cached verdict."""
    cached: bool = False
    base_tests: int | None = None
    """As of `Problem`."""
    followed_loosely: int | None = None
    """Instructions that the text or a variant of it follows (IFEval's loose accuracy); None if there are
    no instructions."""
    rewards: Mapping[str, float | int] | None = None
    """Rewards of a Harbor task's verifier, by name; its trial is the one result."""

    @property
    def score(self) -> float:
        """The dense reward: a Harbor verifier's `reward`, else the share of tests passed."""
        if self.rewards is not None:
            return float(self.rewards["reward"])
        return self.pass_fraction

    @property
    def passed(self) -> bool:
        """True if every test ran and passed: the sparse reward."""
        return (
            self.code is not None
            and len(self.results) == self.n_tests > 0
            and all(result.error is None for result in self.results)
        )

    @property
    def base_passed(self) -> bool | None:
        """True if the first `base_tests` tests ran and passed; None for a problem that has none."""
        if self.base_tests is None:
            return None
        first = self.results[: self.base_tests]
        complete = self.code is not None and len(first) == self.base_tests
        return complete and all(result.error is None for result in first)

    @property
    def loose_passed(self) -> bool | None:
        """True if every instruction is followed loosely; None for a problem without instructions."""
        if self.followed_loosely is None:
            return None
        return self.code is not None and self.followed_loosely == self.n_tests

    @property
    def pass_fraction(self) -> float:
        """Passed tests over all tests; a test skipped by an early stop counts as not passed."""
        return sum(result.error is None for result in self.results) / self.n_tests

    @property
    def error(self) -> ErrorType | None:
        """The first failing test's error; None if accepted."""
        if self.code is None:
            return ErrorType.no_code
        return next((result.error for result in self.results if result.error is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The worth of a verdict, and the parts that it is the sum of."""

    total: float
    parts: Mapping[str, float]
