"""Import of another tool's samples into an evaluation's folder, matched to problems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from omegaconf import DictConfig

from coding_model_project.atomic import replacing
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.evaluation.backends.generation import Completion, Messages, Sampling
from coding_model_project.evaluation.evaluate import evaluate
from coding_model_project.evaluation.import_formats import ForeignSample, Format, read_samples
from coding_model_project.evaluation.journal import storage_errors, to_line
from coding_model_project.evaluation.outputs import Report
from coding_model_project.evaluation.plan import DataSet, sample_seed
from coding_model_project.evaluation.results import COMPLETIONS, Generated, Metrics
from coding_model_project.evaluation.settings import Settings
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.runs.resuming import fingerprint
from coding_model_project.types import GradedBy, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Answers of one file, by problem."""

    path: Path
    format: Format
    data: DataSet
    answers: Mapping[str, Sequence[ForeignSample]]
    """Answers by problem id, in the order of the file; the same number for each."""

    @property
    def n(self) -> int:
        """Samples per problem."""
        return len(next(iter(self.answers.values())))

    @property
    def style(self) -> PromptStyle:
        """Prompt style for extraction: `bare` if the tool extracted a program from each answer."""
        made = all(
            one.graded_by is GradedBy.tests and _program(one, answer) is not None
            for one in self.data.problems
            for answer in self.answers[one.id]
        )
        return PromptStyle.bare if made else PromptStyle.fenced


def match(path: Path, data: DataSet) -> Samples:
    """Read a file of samples and find the problem of each.

    Raises:
        ConfigError: the file is missing, or its tool is unknown.
        DataError: a sample's problem is not in the data set, or a problem has fewer samples than others.
    """
    found, answers = read_samples(path)
    finder = _Finder(data)
    by_problem: dict[str, list[ForeignSample]] = {one.id: [] for one in data.problems}
    for answer in answers:
        by_problem[finder.problem_of(answer)].append(answer)
    if without := [name for name, of in by_problem.items() if not of]:
        raise DataError(
            f"{path}: {len(without)} of {len(by_problem)} problems of {data.name} have no sample, such "
            f"as {without[0]}; pass the data set that was sampled, or add --limit N for its first N"
        )
    usual, _ = Counter(map(len, by_problem.values())).most_common(1)[0]
    for name, of in by_problem.items():
        if len(of) != usual:
            raise DataError(
                f"{path}: {name} has {len(of)} samples, other problems {usual}; pass@k needs the same "
                "number for each"
            )
    return Samples(path=path, format=found, data=data, answers=by_problem)


class _Finder:
    """A matcher of samples to problems."""

    def __init__(self, data: DataSet) -> None:
        self._data = data
        self._ids = {one.id for one in data.problems}
        self._by_number: dict[str, list[str]] = {}
        self._statements: dict[str, list[str]] = {}
        self._found: dict[tuple[str, ...], str | None] = {}
        for one in data.problems:
            self._by_number.setdefault(_number(one.id), []).append(one.id)
            self._statements.setdefault(_squeezed(one.statement), []).append(one.id)

    def problem_of(self, answer: ForeignSample) -> str:
        found = self._by_name(answer.task) if answer.task is not None else None
        if found is None and answer.texts:
            found = self._by_text(answer)
        if found is None:
            named = repr(answer.task) if answer.task is not None else "the problem of its prompt"
            raise DataError(
                f"{answer.place}: {named} is not in {self._data.name} ({len(self._ids)} problems such as "
                f"{self._data.problems[0].id}); pass the data set that was sampled"
            )
        return found

    def _by_name(self, task: str) -> str | None:
        """Match by number and name prefix: `HumanEval/3` is humaneval_plus/3."""
        if task in self._ids:
            return task
        prefix = _letters(task)
        fitting = [
            one
            for one in self._by_number.get(_number(task), ())
            if _letters(one).startswith(prefix) or prefix.startswith(_letters(one))
        ]
        return fitting[0] if prefix and len(fitting) == 1 else None

    def _by_text(self, answer: ForeignSample) -> str | None:
        """Match the longest statement that a text contains, ignoring white space.

        Raises:
            DataError: two problems have the same statement.
        """
        if answer.texts in self._found:
            return self._found[answer.texts]
        texts = [_squeezed(text) for text in answer.texts]
        exact = [text for text in texts if text in self._statements]
        inside = exact or [one for one in self._statements if any(one in text for text in texts)]
        names = self._statements[max(inside, key=len)] if inside else [None]
        if len(names) > 1:
            raise DataError(f"{answer.place}: {names[0]} and {names[1]} have the same statement")
        self._found[answer.texts] = names[0]
        return names[0]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _number(name: str) -> str:
    """Return the last number of a name: 3 of HumanEval/3; all of livecodebench/abc301_a."""
    if "/" in name and not name.rpartition("/")[2].isdecimal():
        return name
    numbers = re.findall(r"\d+", name)
    return str(int(numbers[-1])) if numbers else name


def _letters(name: str) -> str:
    """Return the letters before the last number, in lower case."""
    return re.sub(r"[\W\d_]+", "", name.rpartition("/")[0] or name).lower()


def judge_samples(
    samples: Samples,
    settings: Settings,
    *,
    config: DictConfig,
    command: Sequence[str],
    say: Callable[[str], None],
    report: Report,
) -> Metrics:
    """Judge another tool's samples into an evaluation's folder, or resume it.

    Args:
        settings: the evaluation's settings, with the samples' `n` and `style`.
        config: configuration of the settings, for the record.

    Returns:
        The content of metrics.json.

    Raises:
        ConfigError: the folder has another evaluation.
        SandboxError, StorageError: as `evaluate`; results so far are kept.
    """
    lines = b"".join(map(to_line, _generated(samples, settings.seed)))
    folder, path = settings.run_dir, settings.run_dir / COMPLETIONS
    with storage_errors(folder):
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_bytes(lines)
        elif path.read_bytes() != lines:
            raise ConfigError(f"{folder}: has other completions; pass another folder (--out)")
    # Never equal to our protocols, because the tool's prompts are unknown.
    protocol = replace(settings.protocol, name=f"{samples.format} samples")
    backend = _Imported(f"{samples.format}: {samples.path.name}, {fingerprint(samples.path)}")
    if not any(answer.tokens for of in samples.answers.values() for answer in of):
        say(f"note: {samples.path} has no token counts; they count as 0")
    return evaluate(
        replace(settings, protocol=protocol),
        backend,
        config=config,
        command=command,
        say=say,
        report=report,
    )


def _program(problem: Problem, answer: ForeignSample) -> str | None:
    """Return the program that the tool extracted, or that the answer completes, or None.

    An answer can complete a statement that is code up to a body, as in HumanEval.
    """
    if not answer.continues:
        return answer.program
    try:
        compile(f"{problem.statement.rstrip()}\n    pass\n", "statement", "exec")
    except (SyntaxError, ValueError):
        return None
    return problem.statement + answer.text


def _generated(samples: Samples, seed: int) -> Iterator[Generated]:
    name, as_program = samples.data.name, samples.style is PromptStyle.bare
    for problem in samples.data.problems:
        for number, answer in enumerate(samples.answers[problem.id]):
            program = _program(problem, answer) if as_program else None
            yield Generated(
                dataset=name,
                problem=problem.id,
                sample=number,
                seed=sample_seed(seed, (name, problem.id, number)),
                completion=answer.text if program is None else program,
                tokens=answer.tokens,
                truncated=answer.truncated,
                seconds=0.0,
                at=0.0,
            )


class _Imported:
    """A back end without generation, because all completions exist."""

    concurrency = 1
    repeatable = False

    def __init__(self, identity: str) -> None:
        self.identity = identity

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def check(self, sampling: Sampling) -> Sequence[str]:
        return ()

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        raise ConfigError("imported samples cannot be generated; a sample is missing in the file")
