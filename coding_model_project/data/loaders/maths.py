"""GSM8K and MATH: problems with an answer instead of a program, judged by `grading.maths.grader`."""

from __future__ import annotations

from coding_model_project.data.loaders.base import Part, Published, Row, Unusable, text
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.grading.maths.final_answer import AnswerRule, final_answer
from coding_model_project.types import Problem


def math_problem(
    name: str,
    split: str,
    statement: str,
    answer: str,
    *,
    solution: str | None = None,
    difficulty: int | None = None,
    tags: tuple[str, ...] = (),
) -> Problem:
    """Create a problem with a final answer."""
    if not answer.strip():
        raise Unusable("the answer is empty")
    return Problem(
        id=name,
        split=split,
        statement=statement,
        tests=(),
        answer=answer.strip(),
        language="text",
        difficulty=difficulty,
        tags=tags,
        gold=(solution,) if solution else (),
    )


def _gsm8k(row: Row, part: Part, index: int) -> Problem:
    solution = text(row, "answer")
    name, split = f"gsm8k/{part.split}/{index}", part.split or "train"
    found = final_answer(solution)
    if found is None or found.rule is not AnswerRule.hashes:
        raise Unusable("the answer has no '####' line with a number")
    return math_problem(name, split, text(row, "question"), found.text, solution=solution)


def _math(row: Row, part: Part, index: int) -> Problem:
    solution = text(row, "solution")
    found = final_answer(solution)
    if found is None or found.rule is not AnswerRule.boxed:
        raise Unusable("the solution has no \\boxed answer")
    level = "".join(c for c in str(row.get("level") or "") if c.isdigit())
    kind = row.get("type") or row.get("subject")
    source = "math500" if part.config == "math500" else "math"
    return math_problem(
        f"{source}/{part.split}/{index}",
        part.split or "train",
        text(row, "problem"),
        found.text,
        solution=solution,
        difficulty=int(level) if level else None,
        tags=(kind,) if isinstance(kind, str) else (),
    )


GSM8K = TableLoader(
    published=Published(
        name="gsm8k",
        licence="MIT",
        fields=("question", "answer"),
        parts=tuple(
            Part(
                split=split,
                files=(
                    f"gsm8k/{split}.jsonl",
                    f"grade_school_math/data/{split}.jsonl",
                    f"gsm8k/main/{split}-*.parquet",
                    f"main/{split}-*.parquet",
                ),
                n_rows=n_rows,
                config="main",
            )
            for split, n_rows in (("train", 7_473), ("test", 1_319))
        ),
        hub="openai/gsm8k",
        tests="answers",
        revision="740312add88f781978c0658806c59bc2815b9866",
        whole=False,
    ),
    to_problem=_gsm8k,
)
MATH_LIGHTEVAL = TableLoader(
    published=Published(
        name="math",
        licence="MIT",
        fields=("problem", "solution"),
        optional=("level", "type"),
        parts=tuple(
            Part(
                split=split,
                files=(f"MATH-lighteval/data/{split}-*.parquet", f"MATH/{split}.jsonl"),
                n_rows=n_rows,
            )
            for split, n_rows in (("train", 7_500), ("test", 5_000))
        ),
        hub="DigitalLearningGmbH/MATH-lighteval",
        tests="answers",
        whole=False,
    ),
    to_problem=_math,
)
MATH_500 = TableLoader(
    published=Published(
        name="math500",
        licence="MIT",
        fields=("problem", "solution", "answer"),
        optional=("level", "subject"),
        parts=(
            Part(
                split="test",
                files=("MATH-500/test.jsonl", "math500.jsonl"),
                n_rows=500,
                config="math500",
                hub_file="test.jsonl",
            ),
        ),
        hub="HuggingFaceH4/MATH-500",
        tests="answers",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    ),
    to_problem=_math,
)
