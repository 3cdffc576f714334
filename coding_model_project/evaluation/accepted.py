"""The programs that an evaluation's hidden tests accepted, which SFT may show, or rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.training.rows import refuse_training, source
from coding_model_project.data.training.sft_rows import Candidate
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation.protocols import data_version
from coding_model_project.evaluation.results import (
    COMPLETIONS,
    Evaluation,
    Generated,
    Result,
    program_hash,
    read_completions,
    read_evaluation,
)
from coding_model_project.grading.extract import extract
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Of one evaluation."""

    path: Path
    style: PromptStyle
    """Of its prompts."""
    problems: tuple[Problem, ...]
    """That it asked."""
    samples: int
    ungradable: int
    accepted: int
    cut_off: int
    """Accepted ones ended by the token limit: the program is whole, the answer is not. Left out."""
    programs: tuple[Candidate, ...]


def read_accepted(path: Path, problems: Mapping[str, Problem]) -> Accepted:
    """Join an evaluation's verdicts with its completions and its problems.

    Args:
        problems: by id, at least those that it asked.

    Raises:
        ConfigError: it asked problems that must not train, or others than these.
        DataError: it is no evaluation, or is damaged.
    """
    evaluation = read_evaluation(path)
    members = asked(evaluation, problems)
    for problem in members:
        refuse_training(source(problem), problem.split, str(path))
    style = PromptStyle(str(evaluation.settings["prompt"]))
    passed = [result for result in evaluation.results if result.passed]
    whole = [result for result in passed if not result.truncated]
    texts = {_key(row): row.completion for row in read_completions(path / COMPLETIONS)}
    return Accepted(
        path=path,
        style=style,
        problems=tuple(members),
        samples=len(evaluation.results),
        ungradable=sum(result.ungradable is not None for result in evaluation.results),
        accepted=len(passed),
        cut_off=len(passed) - len(whole),
        programs=tuple(
            _candidate(path, result, texts, problems[result.problem], style) for result in whole
        ),
    )


def read_rejected(path: Path, problems: Mapping[str, Problem]) -> list[Candidate]:
    """The whole programs that failed a hidden test, in the order of judging.

    Args:
        problems: by id, as for `read_accepted`, which checks them.

    Raises:
        DataError: as `read_accepted`.
    """
    evaluation = read_evaluation(path)
    style = PromptStyle(str(evaluation.settings["prompt"]))
    texts = {_key(row): row.completion for row in read_completions(path / COMPLETIONS)}
    return [
        _candidate(path, result, texts, problems[result.problem], style)
        for result in evaluation.results
        if result.passed is False and result.program is not None and not result.truncated
    ]


def asked(evaluation: Evaluation, problems: Mapping[str, Problem]) -> list[Problem]:
    """The problems that an evaluation asked.

    Raises:
        ConfigError: one is missing, or is not what was evaluated.
    """
    found: list[Problem] = []
    for name in evaluation.datasets():
        ids = {result.problem for result in evaluation.results if result.dataset == name}
        if missing := sorted(ids - problems.keys()):
            raise ConfigError(f"{evaluation.path}: --problems has no {missing[0]}, which it asked")
        members = [problem for problem in problems.values() if problem.id in ids]
        described = evaluation.settings["data"][name]  # type: ignore[index]
        # Of a shard, or of one cut short, the version cannot be told.
        if described["problems"] == len(ids) and described["version"] != data_version(members):
            raise ConfigError(
                f"{evaluation.path}: the problems of {name} were not those of --problems (another "
                "statement, tests, limits or order): give the file that was evaluated"
            )
        found += members
    return found


def _candidate(
    path: Path,
    result: Result,
    texts: Mapping[tuple[str, str, int], str],
    problem: Problem,
    style: PromptStyle,
) -> Candidate:
    where = f"{path}: sample {result.sample} of {result.problem}"
    text = texts.get(_key(result))
    if text is None:
        raise DataError(f"{where} has a verdict, but no completion in {COMPLETIONS}")
    code = extract(text, language=problem.language, bare=style is PromptStyle.bare).code
    if code is None or program_hash(code) != result.program:
        raise DataError(
            f"{where}: the program in it is not the one that was judged; evaluate again"
        )
    return Candidate(problem=problem.id, code=code, origin=f"{path.name}/{result.sample}")


def _key(row: Result | Generated) -> tuple[str, str, int]:
    return row.dataset, row.problem, row.sample


def styles(evaluations: Sequence[Accepted]) -> list[PromptStyle]:
    """The different styles of prompts, in order."""
    return list(dict.fromkeys(one.style for one in evaluations))
