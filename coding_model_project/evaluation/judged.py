"""An evaluation's samples as a source of training data: completion, verdict and problem."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.data.governance import is_held_out, split_word
from coding_model_project.data.training.pairs import Candidate as PairCandidate
from coding_model_project.data.training.pairs import Judged
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

    def held_out_line(self) -> str:
        """Return a line on the samples left out; empty if there are none."""
        return held_out_line(f"{self.path}: left out", "samples", self.held_out)

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

    def accepted_programs(self) -> list[Candidate]:
        """Return the accepted programs of complete answers.

        Raises:
            DataError: a completion differs from the judged one.
        """
        return [
            self._program(generated, result)
            for generated, result in self.samples
            if result.passed and not result.truncated
        ]

    def rejected_programs(self) -> list[Candidate]:
        """Return programs of complete answers that failed a hidden test.

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
                f"{self.path}: sample {result.sample} of {result.problem}: its program differs from the "
                "judged one; evaluate again"
            )
        return Candidate(problem=problem.id, code=code, origin=f"{self.path.name}/{result.sample}")


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
        described = evaluation.settings["data"][name]  # type: ignore[index]
        # The version of a shard or of an unfinished evaluation cannot be computed.
        if described["problems"] == len(ids) and described["version"] != data_version(members):
            raise ConfigError(
                f"{evaluation.path}: the problems of {name} differ from --problems (statements, tests, "
                "limits or order); pass the file that was evaluated"
            )
        found += members
    return found


def judged_for_pairs(
    folders: Sequence[Path], problems: Mapping[str, Problem]
) -> tuple[list[Judged], PromptStyle, dict[str, int]]:
    """Return the samples of all evaluations by problem, the style of their prompts, and what is left out.

    Raises:
        ConfigError: the evaluations do not match each other or the problems.
        DataError: a file is damaged.
    """
    candidates: dict[str, list[PairCandidate]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    read = [read_judged(folder, problems) for folder in folders]
    for generated, result in (sample for one in read for sample in one.samples):
        usable = candidates[result.problem]
        if result.passed is None:
            left_out["ungradable samples"] += 1
        elif result.truncated:  # a pair would teach an end that nobody wrote
            left_out["samples cut off by the token limit"] += 1
        else:
            error = None if result.error is None else ErrorType(result.error).group
            usable.append(
                PairCandidate(completion=generated.completion, error=error, tokens=result.tokens)
            )
    judged = [
        Judged(problem=problem, candidates=tuple(candidates[name]))
        for name, problem in problems.items()
        if name in candidates
    ]
    if not judged:
        raise ConfigError(f"{', '.join(map(str, folders))}: no judged samples")
    for split, n in (held_out for one in read for held_out in one.held_out.items()):
        left_out[f"samples of {split} problems"] += n
    return judged, one_style(read), left_out
