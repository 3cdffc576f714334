"""An evaluation's samples as training data is made of them: completion, verdict and problem."""

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
    read_evaluation,
    with_completions,
)
from coding_model_project.grading.extract import extract_for
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSamples:
    """Of one evaluation of training problems."""

    path: Path
    style: PromptStyle
    """Of its prompts."""
    problems: Mapping[str, Problem]
    """That it asked, by id."""
    samples: tuple[tuple[Generated, Result], ...]
    """In the order of judging."""

    @property
    def accepted(self) -> int:
        return sum(result.passed is True for _, result in self.samples)

    @property
    def cut_off(self) -> int:
        """Accepted ones ended by the token limit: the program is whole, the answer is not."""
        return sum(result.passed is True and result.truncated for _, result in self.samples)

    @property
    def ungradable(self) -> int:
        return sum(result.ungradable is not None for _, result in self.samples)

    def accepted_programs(self) -> list[Candidate]:
        """Of whole answers.

        Raises:
            DataError: a completion is not the one that was judged.
        """
        return [
            self._program(generated, result)
            for generated, result in self.samples
            if result.passed and not result.truncated
        ]

    def rejected_programs(self) -> list[Candidate]:
        """Whole ones that failed a hidden test.

        Raises:
            DataError: as `accepted_programs`.
        """
        return [
            self._program(generated, result)
            for generated, result in self.samples
            if result.passed is False and result.program is not None and not result.truncated
        ]

    def _program(self, generated: Generated, result: Result) -> Candidate:
        problem, bare = self.problems[result.problem], self.style is PromptStyle.bare
        code = extract_for(problem, generated.completion, bare=bare).code
        if code is None or program_hash(code) != result.program:
            raise DataError(
                f"{self.path}: sample {result.sample} of {result.problem}: the program in it is not the "
                "one that was judged; evaluate again"
            )
        return Candidate(problem=problem.id, code=code, origin=f"{self.path.name}/{result.sample}")


def read_judged(path: Path, problems: Mapping[str, Problem]) -> JudgedSamples:
    """Read an evaluation of training problems.

    Args:
        problems: by id, at least those that it asked.

    Raises:
        ConfigError: it asked problems that must not train, or others than these, or its prompts are
            not of this project.
        DataError: it is no evaluation, or is damaged.
    """
    evaluation = read_evaluation(path)
    if not (path / COMPLETIONS).is_file():
        raise DataError(f"{path / COMPLETIONS}: no such file")
    members = _asked(evaluation, problems)
    for problem in members:
        refuse_training(source(problem), problem.split, str(path))
    style = str(evaluation.settings.get("prompt", ""))
    if style not in tuple(PromptStyle):
        raise ConfigError(f"{path}: its prompts are {style!r}, not one of ours")
    return JudgedSamples(
        path=path,
        style=PromptStyle(style),
        problems={problem.id: problem for problem in members},
        samples=tuple(with_completions(path, evaluation.results).values()),
    )


def one_style(evaluations: Sequence[JudgedSamples]) -> PromptStyle:
    """The style that the prompts of all of them have.

    Raises:
        ConfigError: they have two.
    """
    first = evaluations[0]
    other = next((one for one in evaluations if one.style is not first.style), None)
    if other is not None:
        raise ConfigError(
            f"{first.path} has prompt={first.style} and {other.path} prompt={other.style}: use "
            "one of them"
        )
    return first.style


def _asked(evaluation: Evaluation, problems: Mapping[str, Problem]) -> list[Problem]:
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
