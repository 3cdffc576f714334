"""From a row to a problem, in three steps that all data sets and `--map` share: prompt, tests, checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from coding_model_project.data.governance import (
    is_held_out,
    isolation_of,
    split_word,
    why_not_shared,
)
from coding_model_project.data.loaders.base import NoTests, Part, Row, Unusable
from coding_model_project.data.loaders.cases import Hints, Truth, tests_of, truth_of
from coding_model_project.data.loaders.modules import root
from coding_model_project.data.loaders.values import (
    Prompt,
    answer_of,
    date_of,
    decoded_of,
    difficulty_of,
    language_of,
    megabytes_of,
    programs_of,
    prompt_of,
    seconds_of,
    texts_of,
    value_at,
)
from coding_model_project.data.problem_rows import default_language, read_field
from coding_model_project.grading.prelude import contest_prelude
from coding_model_project.grading.readings import RULES
from coding_model_project.row_readers import Malformed, shown
from coding_model_project.types import Asserts, Checker, GradedBy, Limits, Problem, Stdin, Turn

TIME_FACTOR = 2.0
"""Factor of published time limits, which are for compiled programs on the judges' machines."""

OUTPUT_KB = 16_384
SLOW = Limits(cpu_s=10.0, wall_s=30.0, output_kb=OUTPUT_KB)
"""Limits of programs without published ones."""

EXTRA = ("starter", "setup", "public", "ability", "time_limit", "memory_limit", "source", "truth")
"""Fields of rows beside those of a problem. `truth` holds tests, an answer or instructions."""

OTHER_KINDS = {kind.field for kind in GradedBy} - {"tests", "answer"}
"""Fields of the kinds of answers that only our own schema has."""

_OWN = ("limits", "comparison", "atol", "rtol", "isolation", "base_tests", "prelude", "publisher",
        "grader", "checker", *OTHER_KINDS)  # fmt: skip
"""Fields in our own schema alone."""

_IMAGES = dict.fromkeys(("images", "image", "videos"), "the row has images")
_NOTHING = ("", "0", "0.0", "stdio")
"""Values, as text, of columns with nothing to refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The columns of a data set's rows, and its rules. Calling it converts a row."""

    name: str
    columns: Mapping[str, str]
    """The column of each field: "a.b" is nested, "a|b" are alternatives, "a+b" are both, and "." is the
    whole row."""
    id: str = "{split}/{index}"
    """The end of problem ids; `{id}` is the field of this name, and `{number}` its end after "/" or "_".
    Without the field, the default is used."""
    kind: str | None = None
    """"code" or "math", for rows that do not say so."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """"code" or "math" by `ability`; rows of other abilities are refused."""
    without: Sequence[str] = ()
    """Patterns of text that is cut from prompts, such as instructions that ours replace."""
    refuse: Mapping[str, str] = field(default_factory=dict)
    """Columns of what cannot be judged, with the reason."""
    limits: Limits = field(default_factory=Limits)
    prepare: Callable[[Row, Part], Row] | None = None
    """A change of each row before it is read, for what no column says."""
    tolerant: bool = False
    """See `checked`."""
    comparison: str = "tokens"
    """The comparison of problems whose tests name none."""
    prelude: bool = False
    """True if the publisher's harness imports names for its programs (`grading.prelude`)."""
    publisher: str | None = None
    """The rule of the publisher's harness for held-out problems, as in `Problem.publisher`."""
    one_process: bool = False
    """True if the publisher's harness runs all calls or asserts of a program in one process."""
    own_ids: bool = False
    """True if ids with a source, such as "mine/1", stay as they are."""
    given: frozenset[str] = frozenset()
    """Fields whose columns a user named: a value that does not fit is an error."""

    def __call__(self, row: Row, part: Part, index: int) -> Problem:
        """Convert a row.

        Raises:
            Unusable: it cannot become a problem that its tests or answer judge.
        """
        for column, why in {**_IMAGES, **self.refuse}.items():
            if (value := row.get(column)) and str(value).strip() not in _NOTHING:
                raise Unusable(why)
        row = self.prepare(row, part) if self.prepare is not None else row
        row = {**row, "_config": part.config or "any"}
        prompt = self._prompt(row)
        gold, bad = (programs_of(self._get(row, name)) for name in ("gold", "bad"))
        truth, public = self._truth(row, gold)
        function = truth.function or root(self._text(row, "entry_point"))
        prompt = _with_starter(prompt, self._get(row, "starter"), function)
        split = split_word(str(self._get(row, "split") or part.split or "train"))
        problem = Problem(
            id=self._id(row, split, index),
            split=split,
            statement=prompt.text,
            messages=prompt.turns,
            tests=(*public.tests, *truth.tests),
            limits=self._limits(row),
            comparison=truth.comparison or self.comparison,
            entry_point=function,
            language=truth.language or self._language(row),
            difficulty=self._optional(row, "difficulty", difficulty_of),
            date=self._optional(row, "date", date_of),
            tags=self._tags(row),
            gold=gold,
            bad=bad,
            answer=truth.answer,
            instructions=truth.instructions,
        )
        if truth.answer is not None or truth.instructions:
            texts = texts_of(self._get(row, "gold"))
            problem = replace(problem, language="text", gold=texts, limits=Limits())
        judged = checked(self._with_own(row, problem), tolerant=self.tolerant)
        return self._as_published(judged)

    def _as_published(self, problem: Problem) -> Problem:
        """Add what the publisher's harness does to answers."""
        is_code = problem.graded_by is GradedBy.tests
        if is_held_out(self.name, problem.split) and (self.publisher in RULES) is is_code:
            problem = replace(problem, publisher=self.publisher)
        if not is_code:
            return problem
        if self.prelude and problem.language == "python":
            problem = replace(problem, prelude=contest_prelude(problem.tests))
        if self.one_process and not any(isinstance(test.input, Stdin) for test in problem.tests):
            problem = replace(problem, isolation=isolation_of(self.name, problem.split))
        return problem

    def _get(self, row: Row, name: str) -> Any:
        return value_at(row, self.columns[name]) if name in self.columns else None

    def _column(self, name: str) -> str:
        return self.columns.get(name, name)

    def _text(self, row: Row, name: str) -> str | None:
        value = self._get(row, name)
        return value if isinstance(value, str) and value.strip() else None

    def _prompt(self, row: Row) -> Prompt:
        column = self._column("statement")
        value = self._get(row, "statement")
        if "+" in column:
            value = "\n\n".join(
                t for one in column.split("+") for t in texts_of(value_at(row, one))
            )
        prompt = prompt_of(value, column)
        if not self.without:
            return prompt
        return Prompt(re.sub("|".join(self.without), "", prompt.text).strip())

    def _language(self, row: Row) -> str:
        return language_of(self._get(row, "language"))

    def _id(self, row: Row, split: str, index: int) -> str:
        given = self._get(row, "id")
        source = _slug(self._get(row, "source"))
        name = f"{self.name}_{source}" if source else self.name
        if given is None and ("{id}" in self.id or "{number}" in self.id):
            return f"{name}/{index + 1}" if self.own_ids else f"{name}/{split}/{index}"
        number, config = re.split("[/_]", str(given))[-1], row["_config"]
        end = self.id.format(id=given, number=number, split=split, index=index, config=config)
        return end if self.own_ids and "/" in end else f"{name}/{end}"

    def _truth(self, row: Row, gold: tuple[str, ...]) -> tuple[Truth, Truth]:
        """Return the hidden tests or the answer, and the public tests."""
        if any(self._get(row, name) is not None for name in OTHER_KINDS & self.columns.keys()):
            return Truth(), Truth()
        if "answer" in self.columns:
            return Truth(
                answer=answer_of(self._get(row, "answer"), self.columns["answer"])
            ), Truth()
        ability = self._get(row, "ability")
        if self.kinds and ability not in self.kinds:
            raise Unusable(f"task type {ability!r}; judged are {', '.join(self.kinds)}")
        hints = Hints(
            field=self._column("tests"),
            kind=self.kinds.get(ability) or kind_of(ability) or self.kind,
            function=self._text(row, "entry_point") or started(self._text(row, "starter")),
            language=self._language(row),
            setup="\n".join(texts_of(self._get(row, "setup"))),
            programs=gold,
        )
        if "truth" in self.columns:
            hints = replace(hints, field=self.columns["truth"])
            truth = truth_of(self._get(row, "truth"), hints)
            says_kind = ability and self.columns["ability"] == "ability"
            if truth.answer is not None and says_kind and hints.kind is None:
                raise Unusable(f"ability {ability!r} is neither code nor math")
            return truth, Truth()
        try:
            shown_tests = _all_tests([self._get(row, "public")], replace(hints, public=True))
        except NoTests:
            shown_tests = Truth()
        except Unusable:
            if "public" in self.given:
                raise
            shown_tests = Truth()  # a column that only shares the field's name
        columns = self._column("tests").split("+")
        return _all_tests([value_at(row, one) for one in columns], hints), shown_tests

    def _limits(self, row: Row) -> Limits:
        seconds = seconds_of(self._get(row, "time_limit"))
        megabytes = megabytes_of(self._get(row, "memory_limit"))
        cpu = seconds * TIME_FACTOR if seconds else self.limits.cpu_s
        return Limits(
            cpu_s=cpu,
            wall_s=max(Limits().wall_s, 3 * cpu) if seconds else self.limits.wall_s,
            memory_mb=max(self.limits.memory_mb, int(megabytes or 0)),
            output_kb=self.limits.output_kb,
        )

    def _optional(self, row: Row, name: str, read: Callable[[Any], Any]) -> Any:
        value = self._get(row, name)
        found = None if value is None else read(value)
        if found is None and value is not None and name in self.given:
            raise Unusable(f"field '{name}' is {shown(value)}, which is no {name}")
        return found

    def _tags(self, row: Row) -> tuple[str, ...]:
        values = [value_at(row, one) for one in self._column("tags").split("+")]
        found = [
            tag for value in values if value is not None for tag in texts_of(decoded_of(value))
        ]
        return tuple(dict.fromkeys(tag for tag in found if tag))

    def _with_own(self, row: Row, problem: Problem) -> Problem:
        """Add the fields that only our own schema has."""
        values = {name: self._get(row, name) for name in _OWN if name in self.columns}
        own = {name: value for name, value in values.items() if value is not None}
        if isinstance(checker := own.get("checker"), str):
            if "checker" not in self.given:
                raise Unusable(
                    "needs a checker, which column 'checker' holds: add --map checker=checker, or "
                    "--map checker=none to compare outputs"
                )
            language = "cpp" if "#include" in checker else "python"
            own["checker"] = Checker(source=checker, language=language)
        kept = {}
        for name, value in own.items():
            try:
                kept[name] = value if is_dataclass(value) else read_field(name, value)
            except Malformed:
                if name == "checker" or name in self.given:
                    raise
                # a column that only shares the name of a field
        if "checker" in kept:
            kept.setdefault("comparison", "checker")
        kept.pop("grader", None)
        grader = next((kind for kind in GradedBy if kind.field in kept), None)
        language = problem.language
        if grader is not None and grader is not GradedBy.harness:
            language = default_language(grader)
        problem = replace(problem, **kept, language=language)
        if reason := why_not_shared(problem):
            raise Unusable(f"field 'isolation': {reason}")
        return problem


def kind_of(ability: Any) -> str | None:
    """Return "code" or "math" for what a row says of its task; None for others."""
    word = str(ability or "").lower()
    if "math" in word:
        return "math"
    return "code" if "cod" in word or "program" in word else None


def _slug(source: Any) -> str:
    plain = "".join(c if c.isalnum() else "_" for c in str(source or ""))
    return plain.strip("_").lower()


# ── values ────────────────────────────────────────────────────────────────────────────────────────


def _all_tests(values: list[Any], hints: Hints) -> Truth:
    """Return the tests of several columns together."""
    found: list[Truth] = []
    for value in values:
        try:
            found.append(tests_of(value, hints))
        except NoTests:
            continue
    if not found:
        raise NoTests("no hidden tests")
    tests = tuple(test for truth in found for test in truth.tests)
    return replace(found[0], tests=tests)


def started(code: str | None) -> str | None:
    """Return the only function of starter code, whose body is often missing."""
    names = re.findall(r"^[ \t]*def ([a-zA-Z]\w*)\(", code or "", re.M)
    return names[0] if len(names) == 1 else None


def _with_starter(prompt: Prompt, starter: Any, function: str | None) -> Prompt:
    """Add the starter code to a prompt, and the function's name if it does not occur otherwise."""
    end = ""
    if isinstance(starter, str) and starter.strip() and starter.strip() not in prompt.text:
        end += f"\n\nStart from this code:\n\n```python\n{starter.rstrip()}\n```\n"
    if function and function not in prompt.text + end:
        end += f"\n\nName the function `{function}`.\n"
    if not end:
        return prompt
    *turns, last = prompt.turns or (Turn("user", ""),)
    whole = (*turns, Turn(last.role, last.content + end)) if prompt.turns else ()
    return Prompt(prompt.text + end, whole)


# ── the last step: what no tests can judge ────────────────────────────────────────────────────────

_ANY_ANSWER = re.compile(
    r"(print|output|find|return|report)\s+any\b|any (one )?of (them|these)\b|"
    r"(multiple|several|many|more than one) (possible |valid |correct |optimal )*"
    r"(answers?|solutions?|ways)[^.]{0,60}\bany\b",
    re.I,
)
_ANY_ORDER = re.compile(
    r"\b(print|output|return|report)\b[^.]{0,80}\bin (any|arbitrary) order\b|"
    r"\border of (the )?(output|answers?|results?)\b[^.]{0,40}\b(not|n't) matter",
    re.I,
)
_INTERACTIVE = re.compile(
    r"\binteractive (problem|task|judge|grader|library|program)|\binteract(ive)? with the (judge|"
    r"grader|jury|interactor|system)|\bthe interactor\b|Tags:\s*\[[^\]]*'interactive'",
    re.I,
)
_ANY_CASE = re.compile(
    r"\b(print|output|letters?|characters?|answers?|words?|strings?|verdict)\b[^.\n]{0,90}"
    r"\bin (any|either|arbitrary) (letter |character )?(case|register)\b|"
    r"\b(answer|output|checker|judge)\w*\b[^.\n]{0,60}\bcase[- ]insensitive\b|"
    r"\bcase of (the )?(letters|output|answer)\b[^.\n]{0,40}\b(not|n't) matter",
    re.I,
)
ANY_CASE = "any_case"
"""The comparison of standard output that ignores the case of letters."""


def checked(problem: Problem, *, tolerant: bool = False) -> Problem:
    """Return a problem that its tests can judge, with the comparison that its statement asks for.

    Args:
        tolerant: whether several right outputs are ignored, as in a benchmark's own scores.

    Raises:
        Unusable: the tests cannot judge it.
    """
    statement = problem.statement
    if not statement.strip():
        raise Unusable("the statement is empty")
    if "<image>" in statement:
        raise Unusable("the statement refers to an image")
    if problem.graded_by is not GradedBy.tests:
        return problem
    if not problem.hidden_tests:
        raise Unusable("no hidden tests")
    if any(isinstance(test.input, Asserts) for test in problem.tests):
        return problem
    if not tolerant and problem.checker is None:
        refuse_many_outputs(statement, problem.tags)
    on_stdin = all(isinstance(test.input, Stdin) for test in problem.tests)
    if not tolerant and on_stdin and problem.comparison == "tokens" and _ANY_CASE.search(statement):
        return replace(problem, comparison=ANY_CASE)
    return problem


def refuse_many_outputs(statement: str, tags: Iterable[str] = ()) -> None:
    """Raise if, by the statement's words, several outputs are right or a judge answers the program.

    Raises:
        Unusable: stored outputs cannot judge it.
    """
    if _INTERACTIVE.search(statement) or "interactive" in {tag.lower() for tag in tags}:
        raise Unusable("an interactive problem, whose judge answers the program")
    if found := _ANY_ANSWER.search(statement) or _ANY_ORDER.search(statement):
        words = " ".join(found.group().split())
        raise Unusable(f'needs a checker: the statement says "{words[:120]}"')
