"""Maths problems: extraction of a text's answer, and its comparison with the expected one."""

import asyncio
import gzip
import json
import re
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coding_model_project.errors import DataError, SandboxError
from coding_model_project.grading.maths import grader as maths_grader
from coding_model_project.grading.maths.final_answer import (
    MAX_CHARACTERS,
    AnswerRule,
    FinalAnswer,
    final_answer,
)
from coding_model_project.grading.maths.grader import MathGrader, same_text_or_number
from coding_model_project.types import ErrorType, Execution, Problem, Status, Verdict
from tests.fakes import FakeSandbox


def problem(answer: str) -> Problem:
    return Problem(
        id="sums/1", split="train", statement="?", tests=(), answer=answer, language="text"
    )


def judged(answer: str, *completions: str, **fields: str) -> list[Verdict]:
    given = replace(problem(answer), **fields)

    async def judge() -> list[Verdict]:
        async with MathGrader() as grader:
            return [await grader.grade_code(given, one) for one in completions]

    return asyncio.run(judge())


FOUND = {
    "a box": (r"So \boxed{42}.", "42", AnswerRule.boxed),
    "the last box": (r"\boxed{1} and then \boxed{2}", "2", AnswerRule.boxed),
    "nested braces": (r"$\boxed{\frac{1}{2}}$", r"\frac{1}{2}", AnswerRule.boxed),
    "an escaped brace": (r"\boxed{\{1, 2\}}", r"\{1, 2\}", AnswerRule.boxed),
    "a box without braces": (r"\boxed 7.", "7", AnswerRule.boxed),
    "a box that was cut off": (r"\boxed{3} or \boxed{4", "3", AnswerRule.boxed),
    "an empty box": (r"\boxed{} the answer is 5", "5", AnswerRule.sentence),
    "hashes": ("1 + 1 = 2\n#### 2", "2", AnswerRule.hashes),
    "hashes with units": ("#### $1,234.50", "$1,234.50", AnswerRule.hashes),
    "hashes with blanks": ("#### 1 200\nDone.", "1 200", AnswerRule.hashes),
    "hashes with thin blanks": ("#### $1\u2009200.50", "$1\u2009200.50", AnswerRule.hashes),
    "hashes with two numbers": ("#### 1 2", "#### 1 2", AnswerRule.sentence),
    "a heading is no answer": ("#### Step 1\nIt is 9", "It is 9", AnswerRule.sentence),
    "a statement": ("The answer is: **12**\nBye", "12", AnswerRule.sentence),
    "a statement in bold": ("The answer is **$18**.", "$18", AnswerRule.sentence),
    "a percentage in bold": ("The answer is *25%*.", "25%", AnswerRule.sentence),
    "the last statement": ("answer: 1\nFinal Answer: 2 apples", "2 apples", AnswerRule.sentence),
    "a statement without an answer": ("The answer is:\n17", "17", AnswerRule.sentence),
    "a box goes before hashes": ("\\boxed{1}\n#### 2", "1", AnswerRule.boxed),
}


@pytest.mark.parametrize("case", FOUND)
def test_the_final_answer_of_a_text(case):
    text, answer, rule = FOUND[case]
    assert final_answer(text) == FinalAnswer(answer, rule)


@pytest.mark.parametrize("text", ["", " \n", "x" * (MAX_CHARACTERS + 1)])
def test_a_text_without_an_answer_that_can_be_compared(text):
    assert final_answer(text) is None


@given(st.text())
def test_any_text_has_an_answer_or_none(text):
    found = final_answer(text)
    assert found is None or 0 < len(found.text) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    "unit",
    [
        r"\boxed{",
        r"\boxed",
        "#### ",
        "answer is ",
        r"\boxed{{",
        r"\boxed{}",
        "1,",
        "#### 1 200 ",
        "* .",
    ],
)
def test_the_search_takes_linear_time(unit):
    started = time.process_time()
    final_answer(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 5


def test_a_verdict_names_answer_rule_and_judge():
    right, wrong, none = judged("42", "#### 42", "#### 41", "")
    assert (right.passed, right.code) == (True, "42")
    assert (right.extraction, right.comparison) == ("hashes", "math")
    assert right.sandbox.startswith("math-verify ")
    assert wrong.error is ErrorType.wrong_answer and "'41'" in wrong.results[0].detail
    assert (none.error, none.code, none.extraction) == (ErrorType.no_code, None, "nothing")


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("3 * 4 = 12 hundred.\n#### 1,200", True, True),
        ("#### $1200", False, True),  # the pattern allows no "$"
        ("#### 1200.\n\nQuestion: Next?\nAnswer: #### 7", True, True),
        ("#### 7\n#### 1200", False, True),
        ("So it is $1,200.", False, True),
        ("#### 1200 of 1300", True, False),
        ("#### 1200%", True, True),  # the pattern ends before the sign
        ("#### 1 200", False, False),  # strict-match reads 1, flexible-extract 200
        ("#### 1200.0", False, False),  # texts are compared
        ("\\boxed{1200} of 3", False, False),
        ("It is Question: 1200", False, False),
        ("none", False, False),
        ("", False, False),
    ],
)
def test_lm_evals_rules_for_gsm8k(text, strict, flexible):
    (verdict,) = judged("1,200", text, comparison="gsm8k")
    assert verdict.passed is strict
    assert verdict.other_rules == {"strict-match": strict, "flexible-extract": flexible}


def test_gsm8k_has_lm_evals_rules_beside_the_mathematical_one():
    boxed, hashes = judged("18", "\\boxed{18} of 20", "#### 18", publisher="lm_eval")
    assert (boxed.passed, hashes.passed) == (True, True)
    assert boxed.other_rules == {"strict-match": False, "flexible-extract": False}
    assert hashes.other_rules == {"strict-match": True, "flexible-extract": True}
    (other,) = judged("18", "#### 18")
    assert other.other_rules is None


def test_a_problem_without_an_answer_is_unusable():
    with pytest.raises(DataError, match="no answer to compare with"):
        judged(" ", "#### 1")


def test_a_math_verify_that_does_not_work_is_no_wrong_answer():
    """math-verify reports any failure to parse as unequal, so every answer would be wrong."""
    broken = FakeSandbox(lambda *_: Execution(status=Status.finished, value=False))

    async def body():
        async with MathGrader(make_sandbox=lambda: broken) as grader:
            await grader.grade_code(problem("1/2"), r"\boxed{0.5 + 0}")

    with pytest.raises(SandboxError, match="4/8 unequal to 1/2"):
        asyncio.run(body())


@pytest.mark.sandbox
async def test_equal_by_mathematics():
    equal = {
        r"\frac{1}{2}": (r"\boxed{1/2}", r"\boxed{0.5}", "the answer is 1/2", r"\boxed{\dfrac12}"),
        "x^2+1": (r"\boxed{1 + x^2}",),
        "(3,4)": (r"\boxed{(3, 4)}", r"\boxed{\left(3,4\right)}"),
        r"11\sqrt{2}": (r"\boxed{11 \sqrt 2}", r"\boxed{\sqrt{242}}"),
        r"\text{Monday}": (r"\boxed{\text{Monday}}", r"\boxed{Monday}"),
        "2": (r"\boxed{x = 2}", "I think it is $2$."),
    }
    async with MathGrader() as grader:
        for gold, completions in equal.items():
            found = [await grader.grade_code(problem(gold), one) for one in completions]
            assert [one.passed for one in found] == [True] * len(completions), gold


@pytest.mark.sandbox
def test_guesses_lists_and_floods_earn_nothing(monkeypatch):
    brief = replace(maths_grader.LIMITS, cpu_s=1.0)
    monkeypatch.setattr(maths_grader, "LIMITS", brief)
    hostile = (
        r"\boxed{41, 42}",
        r"\boxed{\{40, 41, 42\}}",
        r"\boxed{41 \text{ or } 42}",
        r"\boxed{x}",
        r"\boxed{9^{9^{9^9}}}",
        r"\boxed{" + "(" * 400 + "}",
        "The answer is 42, or 43",
        r"\boxed{42} and, on second thought, \boxed{43}",
        "\x00\ud800",
    )
    assert [one.passed for one in judged("42", *hostile)] == [False] * len(hostile)


BLANKS = (
    "~", "\\ ", "\\,", "\\quad ", "\n", "\u00a0", "\u2003", "\u200b", "\\hspace{1cm}", "{}", "\\\\",
    "\\text{ }", "\\phantom{x}", "\\kern3pt ", " ", "\\ldots ", "\\quad x=", "~x=",
)  # fmt: skip
SIGNS = (r"\cup", r"\cap", r"\to", r"\neg", r"\rightarrow", r"\mid", "∪", "→", "|", "&", "?")


@pytest.mark.parametrize("gold", ["7", "8", "78", "15", "56"])
def test_values_side_by_side_are_no_single_value(gold):
    from coding_model_project.grading.maths.equal_answers import equal

    texts = [f"7{blank}8" for blank in BLANKS] + [f"7 {sign} 8" for sign in SIGNS]
    texts += [r"\neg 8", "¬8", r"\pi \cup 8"]
    assert [text for text in texts if equal(gold, text, True)] == []
    assert [text for text in texts if equal(gold, f"${text}$.", False)] == []


def test_one_value_with_blanks_or_signs_is_that_value():
    from coding_model_project.grading.maths.equal_answers import equal

    answers = {
        "5": (r"5\text{ apples}", r"5\ \mathrm{m}", r"n \to 5", "= 5", r"5\quad\text{(mod 7)}"),
        "3.5": (r"3\frac12", r"3\ \frac{1}{2}"),
        "10000": (r"10,\!000", "10,000", "10{,}000"),
        "2,3": ("2, 3", r"2 \text{ and } 3", r"x=2 \quad \text{or} \quad x=3", r"2,\quad 3"),
        r"(-\infty,1)\cup(2,\infty)": (r"(-\infty, 1) \cup (2, \infty)",),
        r"\begin{pmatrix}1\\2\end{pmatrix}": (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",),
        r"7\quad 8": (r"7 \quad 8",),
    }
    for gold, same in answers.items():
        assert [one for one in same if not equal(gold, one, True)] == [], gold


PERCENT = [
    "25", "25%", r"25\%", r"25\,\%", r"25~\%", r"25\ \%", "25\u202f%", "25％", r"25\text{ percent}",
    "25.0%", "#### 25", "#### 25%", r"#### 25\%", "#### 25 %.", "The answer is 25%.",
    "The answer is **25%**.", r"It is $25\%$.",
]  # fmt: skip
OTHERWISE = [
    "0.25", r"\frac14", r"2\%5", r"2500\%", r"25\%, 30\%", "#### 0.25", "The answer is 0.25."
]  # fmt: skip
"""Forms of 25 per cent, as 25 or `25\\%`, and what is neither; a share is no percentage."""

NOTATIONS = {
    "25": (PERCENT, OTHERWISE),
    "25%": (PERCENT, OTHERWISE),
    r"25\%": (PERCENT, OTHERWISE),
    "0.25": ([r"0.25\%"], [r"25\%", "#### 25%", "The answer is 25%."]),
    r"12.5\%": (["12.5", r"\frac{25}{2}"], ["1.25", "1250"]),
    "1200": (
        [
            r"1\,200", r"1\, 200", r"1\;200", r"1\:200", r"1\ 200", r"1{\,}200", r"1\thinspace200",
            "1 200", "1~200", "1\u2009200", "1\u202f200", "1\u00a0200", "1\u200a200", r"\$1{,}200",
            r"1\,200\text{ m}", "It is 1 200 km", "#### 1 200", "#### $1\u2009200.",
        ],
        [
            r"1\,20", r"12\,00", r"1\,200\,30", "1, 200", r"1\quad 200", "1\u2003200", "1  200",
            "1\t200", "1 20", "#### 1 20", "1 2", "0 200",
        ],
    ),
    "1234567.5": (
        ["1 234 567.5", r"1\,234\,567.5", "#### 1 234 567.50"],
        ["1 234567.5", "12 34 567.5", r"1 234\,56", "1 234 567 5"],
    ),
    "3400": (["3 400", "#### 3 400"], ["3, 400", r"3\quad 400", "3 4 00"]),
    "3, 400": (["3, 400", r"3,\ 400"], ["3 400", "3400", "#### 3 400"]),
    "12": (["12."], ["1 2", "#### 1 2", r"1\,2"]),
    r"2516_8": (
        [r"2516_{8}", r"2516_{\text{eight}}", "(2516)_8", "2516"],
        ["2516_9", "1358", "2516_8, 9", "2516_8 + 3", "The answer is $2516_9$."],
    ),
    "7": (
        [r"7 \pmod{8}", r"x \equiv 7 \pmod 8", r"\approx 7", r"\text{The answer is } 7"],
        ["7_8", r"7 \bmod 8", r"7 \approx 8", r"7 \equiv 8", r"\text{The answer is not } 7"],
    ),
    r"7 \pmod{8}": (["7"], [r"7 \pmod{9}"]),
    r"\frac13": ([r"0.\overline{3}", r"\frac13 \approx 0.333"], ["0.333333333"]),
    "0.0000001": (["10^{-7}"], ["0.0000002", "0"]),
    r"1.6\times 10^{-19}": ([r"1.60\cdot 10^{-19}"], [r"1.7\times 10^{-19}", r"1.6\times 10^{-20}"]),
    "3.14": (["3.1400"], ["3.1400001", r"\pi"]),
    r"1 - \frac{1}{\mathrm{e}}": ([r"1 - \frac{1}{e}"], [r"1 - \frac{1}{x}"]),
    r"6-5\mathrm{i}": (["6 - 5i"], ["6 + 5i"]),
    r"\sqrt{1/n}": ([r"\frac{1}{\sqrt{n}}"], [r"\sqrt{n}"]),
    r"\sqrt{x^2}": ([r"|x|"], ["x"]),
    r"\frac12": ([r"\sin 30^\circ"], [r"\cos 30^\circ"]),
    r"(2,\infty)": (["x>2"], [r"x \ge 2"]),
    r"\$5": (["5", r"\text{\$}5", r"#### \$5"], ["6"]),
    "18": (
        [
            "#### $18", "#### $18.00", r"#### \$18.", "#### £18", "The answer is **$18**.",
            "It is $18 a day.",
        ],
        ["#### -18", "#### $180", "The answer is **$19**."],
    ),
}  # fmt: skip
"""Expected answers, with equal and unequal ones: the content of a box, or a whole text."""


@pytest.mark.parametrize("gold", NOTATIONS)
def test_notations_of_one_value_are_equal_and_those_of_others_are_not(gold):
    def same(text: str) -> bool:
        return is_right(gold, text if text.startswith(("#", "It", "The")) else f"\\boxed{{{text}}}")

    equals, others = NOTATIONS[gold]
    assert ([text for text in equals if not same(text)], list(filter(same, others))) == ([], [])


@pytest.mark.parametrize(
    "text", [r"\boxed{4", r"The answer is $\boxed{\frac{8}{2}", r"4, or \boxed{4"]
)
def test_a_box_that_was_cut_off_is_wrong(text):
    assert not is_right("4", text)
    assert not is_right("42", text)


def is_right(gold: str, text: str) -> bool:
    """Judge a text as `MathGrader` does, but in this process."""
    from coding_model_project.grading.maths.equal_answers import equal
    from coding_model_project.grading.maths.notation import normal

    if (found := final_answer(text)) is None:
        return False
    known = same_text_or_number(gold, found)
    boxed = found.rule is not AnswerRule.sentence
    return equal(normal(gold), normal(found.text), boxed) if known is None else known


LABELLED = Path(__file__).parents[2] / "frozen" / "maths_answers.jsonl.gz"
"""Answers, with the verdicts of five other graders and `right`, a label by hand; null is open."""

STILL_WRONG = {("2ab", r"The answer is $\boxed{2ba}$.")}  # math-verify takes "ba" for a unit


def test_labelled_answers_get_their_label_more_often_than_by_any_other_grader():
    rows = [json.loads(line) for line in gzip.decompress(LABELLED.read_bytes()).splitlines()]
    rows = [row for row in rows if row["right"] is not None]
    wrong = {
        (row["gold"], row["answer"])
        for row in rows
        if is_right(row["gold"], row["answer"].rpartition("</think>")[2]) is not row["right"]
    }
    assert wrong == STILL_WRONG
    others = ("math_verify", "prime_math", "minerva_boxed", "hendrycks", "math_dapo")
    right = {name: sum(row[name] is row["right"] for row in rows) for name in others}
    page = (Path(__file__).parents[3] / "docs" / "grading.md").read_text()
    (told,) = re.findall(r"Of (\d+) labelled answers,([^.]+)\.", page)
    counts = [int(n) for n in (told[0], *re.findall(r"\d+", told[1]))]
    assert counts == [len(rows), len(rows) - len(wrong), *right.values()]


@pytest.mark.sandbox
async def test_numbers_compare_as_math_verify_compares_them():
    """The short way for plain numbers against the long one."""
    numbers = ["0", "7", "-7", "1,200", "1200.5", "0.333333", "0.333334", "12.50", "99999999999"]

    async with MathGrader() as grader:
        for gold, text in product(numbers, numbers):
            given = FinalAnswer(text, AnswerRule.boxed)
            found = (await grader._compared("p", gold, given)).error is None
            assert same_text_or_number(gold, given) is found, (gold, text)
