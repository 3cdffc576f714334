"""An evaluation's samples as a source of training data: completion, verdict and problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.governance import is_held_out, split_word
from coding_model_project.data.training.rows import refuse_training, source
from coding_model_project.data.training.samples import Sample
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation.plan import data_version
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
from coding_model_project.types import ErrorType, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSamples:
    """The judged samples of one evaluation of training problems."""

    path: Path
    style: PromptStyle
    """Style of the evaluation's prompts."""
    problems: Mapping[str, Problem]
    """Training problems of the evaluation, by id."""
    samples: tuple[tuple[Generated, Result], ...]
    """Samples of these problems in the order of judging, by this judge's rule."""
    held_out: Mapping[str, int]
    """Number of other samples by their problem's split, such as validation: they train nothing."""

    @property
    def accepted(self) -> int:
        return sum(result.passed is True for _, result in self.samples)

    @property
    def cut_off(self) -> int:
        """Number of accepted samples cut off by the token limit after a complete program."""
        return sum(result.passed is True and result.truncated for _, result in self.samples)

    @property
    def ungradable(self) -> int:
        return sum(result.ungradable is not None for _, result in self.samples)

    def complete(self) -> list[Sample]:
        """Return the judged answers that were not cut off.

        Raises:
            DataError: a completion differs from the judged one.
        """
        return [
            self._sample(generated, result)
            for generated, result in self.samples
            if result.passed is not None and not result.truncated
        ]

    def _sample(self, generated: Generated, result: Result) -> Sample:
        problem, bare = self.problems[result.problem], self.style is PromptStyle.bare
        code = extract_for(problem, generated.completion, bare=bare).code
        judged = None if code is None else program_hash(code)
        if judged != result.program and (result.passed or result.program is not None):
            raise DataError(
                f"{self.path}: sample {result.sample} of {result.problem}: its program differs from the "
                "judged one; evaluate again"
            )
        return Sample(
            problem=problem,
            completion=generated.completion,
            code=code,
            error=None if result.error is None else ErrorType(result.error).group,
            tokens=result.tokens,
            origin=f"{self.path.name}/{result.sample}",
        )


def read_judged(path: Path, problems: Mapping[str, Problem]) -> JudgedSamples:
    """Read an evaluation's samples of training problems; those of validation and test splits are counted.

    Args:
        problems: problems by id, including at least the evaluated ones.

    Raises:
        ConfigError: the evaluation has test-only problems, no training problems, problems missing from
            these, or prompts of another project.
        DataError: the folder is not an evaluation, or is damaged.
    """
    evaluation = read_evaluation(path)
    if not (path / COMPLETIONS).is_file():
        raise DataError(f"{path / COMPLETIONS}: no such file")
    members = _evaluated(evaluation, problems)
    for problem in members:
        refuse_training(source(problem), problem.split, str(path))
    style = str(evaluation.settings.get("prompt", ""))
    if style not in tuple(PromptStyle):
        raise ConfigError(
            f"{path}: unknown prompt style {style!r}; expected one of {', '.join(PromptStyle)}"
        )
    training = {one.id: one for one in members if not is_held_out(source(one), one.split)}
    samples = tuple(with_completions(path, evaluation.results).values())
    splits = {one.id: split_word(one.split) for one in members}
    held_out = Counter(splits[r.problem] for _, r in samples if r.problem not in training)
    if held_out and not training:
        raise ConfigError(
            f"{path}: all its problems are held out (splits {', '.join(held_out)}) and must not train; "
            "evaluate problems of a training split"
        )
    return JudgedSamples(
        path=path,
        style=PromptStyle(style),
        problems=training,
        samples=tuple(
            (generated, result.by_this_judge)
            for generated, result in samples
            if result.problem in training
        ),
        held_out=held_out,
    )


def held_out_line(start: str, what: str, held_out: Mapping[str, int]) -> str:
    """Return a line on what is left out of training rows, with numbers by split; empty without any."""
    if not held_out:
        return ""
    splits = ", ".join(f"{split} {n:,}" for split, n in held_out.items())
    return f"{start} {sum(held_out.values()):,} {what} of held-out problems ({splits})"


def one_style(evaluations: Sequence[JudgedSamples]) -> PromptStyle:
    """Return the prompt style that all evaluations share.

    Raises:
        ConfigError: the styles differ.
    """
    first = evaluations[0]
    other = next((one for one in evaluations if one.style is not first.style), None)
    if other is not None:
        raise ConfigError(
            f"{first.path} has prompt={first.style} and {other.path} prompt={other.style}; use "
            "evaluations with the same prompt"
        )
    return first.style


def _evaluated(evaluation: Evaluation, problems: Mapping[str, Problem]) -> list[Problem]:
    """Return the problems of an evaluation.

    Raises:
        ConfigError: a problem is missing, or has changed since the evaluation.
    """
    found: list[Problem] = []
    for name in evaluation.datasets():
        ids = {result.problem for result in evaluation.results if result.dataset == name}
        if missing := sorted(ids - problems.keys()):
            raise ConfigError(
                f"{evaluation.path}: the evaluated problem {missing[0]} is missing from --problems"
            )
        members = [problem for problem in problems.values() if problem.id in ids]
        described = evaluation.settings["data"][name]
        # The version of a shard or of an unfinished evaluation cannot be computed.
        if described["problems"] == len(ids) and described["version"] != data_version(members):
            raise ConfigError(
                f"{evaluation.path}: the problems of {name} differ from --problems (statements, tests, "
                "limits or order); pass the file that was evaluated"
            )
        found += members
    return found


def left_out(read: Sequence[JudgedSamples]) -> dict[str, int]:
    """Return the numbers of samples that are not `complete`, by reason."""
    found: Counter[str] = Counter()
    for one in read:
        found["ungradable samples"] += one.ungradable
        found["samples cut off by the token limit"] += sum(
            result.passed is not None and result.truncated for _, result in one.samples
        )
        for split, n in one.held_out.items():
            found[f"samples of {split} problems"] += n
    return dict(+found)
