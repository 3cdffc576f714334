"""The core value types: problems, executions, verdicts and rewards.

1. A sandbox returns *answers* (`Execution`). Only the host holds expected outputs, so only the host
   makes *verdicts* (`Verdict`).
2. A failure of the infrastructure is an exception (`errors.py`). A wrong program is a value.

    completion → code → Execution per test → Verdict → Reward
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum

from coding_model_project.codec import STDERR_TAIL as STDERR_TAIL
from coding_model_project.codec import Opaque, Plain

# ── running a program ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one execution. The CPU limit is the effective one; the wall-clock limit ends
    programs that wait."""

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


@dataclass(frozen=True, slots=True)
class Call:
    """Call one function (or method of `Solution`) of the program; the answer is its value."""

    function: str
    args: tuple[Plain, ...] = ()
    continues: bool = False
    """Call the function in the process of the preceding calls, with the state that they left
    (`Isolation`)."""


@dataclass(frozen=True, slots=True)
class Asserts:
    """Trusted test code that calls into the program from its own confined process.

    The answer is a pass or the failing line.
    """

    source: str
    entry_point: str | None = None
    continues: bool = False
    """Run in the processes of the preceding asserts, with the state that they left (`Isolation`)."""


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
    """The way an execution ended. It does not say whether the answer is right."""

    finished = "finished"
    syntax_error = "syntax_error"
    """The interpreter rejects the source before any of the program runs."""
    compile_error = "compile_error"
    raised = "raised"
    """An uncaught exception or a non-zero exit."""
    signalled = "signalled"
    killed = "killed"
    """Ended by a SIGKILL that the sandbox did not send: by the machine, or by the program itself."""
    cpu_timeout = "cpu_timeout"
    wall_timeout = "wall_timeout"
    memory_limit = "memory_limit"
    output_limit = "output_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The answer to one input, and the resources used."""

    status: Status
    stdout: str = ""
    stderr_tail: str = ""
    value: Plain | Opaque = None
    """The value that a `Call` returned; None for other inputs."""
    exit_code: int | None = None
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_memory_mb: float | None = None


# ── problems ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Test:
    """An input and its expected answer. Only hidden tests earn reward; prompts may show public ones."""

    __test__ = False  # not a pytest class

    input: TestInput
    _: KW_ONLY
    expected: Plain = ...  # pyrefly: ignore[bad-assignment]
    """Text for a `Stdin`, a value for a `Call`; none for `Asserts`, whose source compares."""
    public: bool = False

    def __post_init__(self) -> None:
        if self.expected is ...:
            # A function without `return` returns None: it must not pass by a forgotten answer.
            if isinstance(self.input, Call):
                raise TypeError(f"Test(Call({self.input.function!r})): expected=… is missing")
            object.__setattr__(self, "expected", None)


class Protocol(StrEnum):
    """The arguments and the answer of a checker."""

    testlib = "testlib"
    """`checker input output answer`; exit code 0 accepts, 1, 2 and 7 reject, 3 is its own failure."""
    score = "score"
    """`checker input answer output`; prints a number: 1 accepts, a smaller one rejects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """The problem author's program that judges outputs when several are right."""

    source: str
    language: str = "python"
    protocol: Protocol = Protocol.testlib


@dataclass(frozen=True, slots=True)
class Instruction:
    """A rule that a text must follow, checked by `grading.instructions`."""

    kind: str
    """Its name in IFEval, IFBench or IFEvalG, such as "punctuation:no_comma"."""
    arguments: Mapping[str, Plain] = field(default_factory=dict)
    """Arguments of the kind, such as {"num_words": 300}."""


class Predicted(StrEnum):
    """The side of `f(input) == output` that a completion fills in."""

    output = "output"
    """The value that the function returns."""
    input = "input"
    """Any input for which the function returns the value."""


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
    """The author's code around a completion's program, for tests that share its process.

    `before`, the completion's program and `after` form one program. It runs the tests. Once all have
    passed, it copies its standard input to standard output as its last line.
    """

    before: str = ""
    after: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation."""

    role: str
    """"system", "user" or "assistant"."""
    content: str


class GradedBy(StrEnum):
    """The grader of a problem: its name, the field of `Problem` that it judges by, and whether it runs
    a program. `grading.kinds` has the rest about each."""

    field: str
    runs_program: bool

    def __new__(cls, name: str, field: str, runs_program: bool) -> GradedBy:
        kind = str.__new__(cls, name)
        kind._value_, kind.field, kind.runs_program = name, field, runs_program
        return kind

    tests = "tests", "tests", True
    """Runs the program of a completion."""
    math = "math", "answer", False
    """Compares the final answer of a completion."""
    instructions = "instructions", "instructions", False
    """Checks a completion against instructions."""
    prediction = "prediction", "prediction", False
    """Compares a completion's prediction about a function."""
    harness = "harness", "harness", True
    """Runs the program of a completion within the author's program."""
    harbor = "harbor", "task", True
    """Runs the verifier of a Harbor task."""


class Isolation(StrEnum):
    """The state that the tests of a problem share."""

    per_test = "per_test"
    """No state: each test has its own process."""
    shared = "shared"
    """Each assert or call sees the state that earlier ones left, for test-only data sets whose publisher
    runs them in one process. Never for problems that may train (`data.governance.why_not_shared`)."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Problem:
    """A task and its means of judging: tests, a Harbor task, an answer, rules, a prediction or a harness.

    `id` is "source/number"; `gold` and `bad` are solutions known to pass and to fail.
    """

    id: str
    split: str
    statement: str
    tests: tuple[Test, ...]
    limits: Limits = field(default_factory=Limits)
    comparison: str = "tokens"
    """The rule for standard output (`grading.compare`), "checker", or a rule for the values of calls
    (`grading.compare`), which compare as data by default."""
    atol: float = 1e-6
    """Absolute tolerance of floats, in tokens of standard output and in values of calls."""
    rtol: float = 1e-6
    """Relative tolerance of floats: one may differ by `atol` or by this share of the expected value."""
    checker: Checker | None = None
    """The judge of standard output if `comparison` is "checker"."""
    isolation: Isolation = Isolation.per_test
    """The isolation of asserts and calls; tests with standard input are always isolated."""
    entry_point: str | None = None
    language: str = "python"
    difficulty: int | None = None
    date: str | None = None
    """Its publication date, such as "2024-08-01"."""
    tags: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    task: str | None = None
    """The folder of a Harbor task, whose verifier replaces tests."""
    answer: str | None = None
    """The final answer of a maths problem, which has no tests."""
    instructions: tuple[Instruction, ...] = ()
    """The rules of an instruction-following problem, which has no tests."""
    prediction: Prediction | None = None
    """The prediction to make about a function, for a problem without tests."""
    harness: Harness | None = None
    """The program that tests a completion's program from within, instead of tests."""
    messages: tuple[Turn, ...] = ()
    """The conversation to answer, if it is more than one message. `statement` is its whole text."""
    base_tests: int | None = None
    """The number of leading hidden tests that also have their own score. EvalPlus extends a benchmark's
    own tests and reports both scores."""
    prelude: str = ""
    """Python source that runs before a program, such as the imports of the publisher's harness."""
    publisher: str | None = None
    """The publisher whose rule gives a second reading of each verdict (`grading.readings.RULES`, or
    "lm_eval" for GSM8K)."""

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
            id: the problem's id; by default "simple/" and a digest of the statement, so that the same
                statement always has the same id.
            limits: the limits of each test; by default 5 s of CPU, 15 s of wall time, 512 MB, 1 MB of
                output.
            comparison: the comparison of standard output: "tokens" (by words), "lines", "last_line" or
                "exact".
            atol: the absolute tolerance of floats, in "tokens" and in values of calls.
            rtol: the relative tolerance of floats; a float may differ by either.
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
        others = (kind for kind in GradedBy if kind is not GradedBy.tests)
        has_field = (kind for kind in others if getattr(self, kind.field) not in (None, ()))
        return next(has_field, GradedBy.tests)

    @property
    def asked(self) -> str:
        """The user's question, without a system message that many problems share."""
        asked = [turn.content for turn in self.messages if turn.role == "user"]
        return "\n\n".join(asked) or self.statement

    @property
    def asks_for_code(self) -> bool:
        """True if a completion holds a program, not a text."""
        return self.graded_by.runs_program

    @property
    def hidden_tests(self) -> tuple[Test, ...]:
        """The tests that earn reward and are never shown to a model."""
        return tuple(test for test in self.tests if not test.public)

    @property
    def public_tests(self) -> tuple[Test, ...]:
        """The tests that a prompt may show."""
        return tuple(test for test in self.tests if test.public)


UNJUDGED = ("gold", "bad", "tags", "difficulty", "date")
"""Fields of `Problem` that neither a prompt nor a verdict depends on. Caches, journals and the versions
of data sets leave them out."""


# ── verdicts ──────────────────────────────────────────────────────────────────────────────────────


class ErrorType(StrEnum):
    """Reasons for rejecting a program."""

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
"""The error groups in metrics; with `accepted`, their shares sum to 1 over graded samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """The outcome of one test; without an error, it passed."""

    __test__ = False  # not a pytest class

    error: ErrorType | None
    cpu_s: float = 0.0
    detail: str = ""
    """The failing line, difference or exception, or the limit that ended the test; at most 2 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of judging one completion.

    Rewards, evaluation, preference pairs, filters and repair feedback use it.
    """

    problem_id: str
    code: str | None
    extraction: str
    """The rule that found the code (`grading.extract.Rule`)."""
    results: tuple[TestResult, ...]
    """The results of the tests that ran, in order; fewer than `n_tests` after an early stop."""
    n_tests: int
    comparison: str
    """The comparison rule applied (`Problem.comparison`)."""
    sandbox: str
    """`Sandbox.identity` of the sandbox that ran it."""
    grader_version: str
    isolation: Isolation = Isolation.per_test
    """The state that the tests shared; per test also for calls in a sandbox that cannot share it
    (`sandbox.base.SharesCalls`)."""
    public: bool = False
    """True for a verdict on the public tests, which may be shown to a model; the hidden tests may not."""
    integrity: str = "isolated"
    """"in_process" if the candidate's code shared a process with its judge: a problem's harness, or a
    Harbor verifier (`harbor.harbor_config.Integrity`)."""
    judge_s: float = 0.0
    """Wall-clock seconds of judging; 0 for a cached verdict."""
    cached: bool = False
    base_tests: int | None = None
    """See `Problem.base_tests`."""
    followed_loosely: int | None = None
    """The number of instructions that the text or a variant of it follows (IFEval's loose accuracy).
    None for all other problems."""
    other_rules: Mapping[str, bool] | None = None
    """Decisions of other rules by name, true if accepted: lm-eval's `strict-match` and
    `flexible-extract` for GSM8K. None for all other problems."""
    rewards: Mapping[str, float | int] | None = None
    """Rewards of a Harbor task's verifier, by name; the trial is its only result."""
    publisher_passed: bool | None = None
    """True if it passes by the rule of `Problem.publisher`; None without one."""
    publisher_differs: str = ""
    """Why that rule decides otherwise, such as "over 6 s"; empty if it does not."""

    def __str__(self) -> str:
        """Return the outcome on one line; `repr` shows every field."""
        error = f"error={str(self.error)!r}, " if self.error else ""
        n_passed = sum(result.error is None for result in self.results)
        rewards = f", rewards={dict(self.rewards)}" if self.rewards is not None else ""
        failing = next((result for result in self.results if result.error is not None), None)
        detail = f", detail={failing.detail[:200]!r}" if failing and failing.detail else ""
        return (
            f"Verdict({self.problem_id!r}, passed={self.passed}, {error}"
            f"{n_passed} of {self.n_tests} tests{rewards}{detail})"
        )

    @property
    def score(self) -> float:
        """The dense reward: a Harbor verifier's `reward`, else the share of passed tests."""
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
        """True if the first `base_tests` tests ran and passed; None if the problem has none."""
        if self.base_tests is None:
            return None
        first = self.results[: self.base_tests]
        complete = self.code is not None and len(first) == self.base_tests
        return complete and all(result.error is None for result in first)

    @property
    def loose_passed(self) -> bool | None:
        """True if every instruction is followed loosely; None if `followed_loosely` is."""
        if self.followed_loosely is None:
            return None
        return self.code is not None and self.followed_loosely == self.n_tests

    @property
    def pass_fraction(self) -> float:
        """The share of passed tests; a test skipped by an early stop counts as failed."""
        return sum(result.error is None for result in self.results) / self.n_tests

    @property
    def error(self) -> ErrorType | None:
        """The first failing test's error; None if accepted."""
        if self.code is None:
            return ErrorType.no_code
        return next((result.error for result in self.results if result.error is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The reward for a verdict, and the parts that add up to it."""

    total: float
    parts: Mapping[str, float]
