"""Concurrent generation and judging of samples, each stored as soon as it is done.

A sample is an episode: an answer, and up to the protocol's number of repairs (`episodes.repair`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from coding_model_project.concurrency import each
from coding_model_project.episodes.repair import Attempt, Seen, attempts, look_at
from coding_model_project.errors import DataError, PromptError, SandboxError, UngradableError
from coding_model_project.evaluation.backends.generation import Backend, Completion
from coding_model_project.evaluation.journal import Journal
from coding_model_project.evaluation.outputs import rollout_of
from coding_model_project.evaluation.plan import EvalProtocol, Sample, sample_seed
from coding_model_project.evaluation.results import Generated, Key, Result, program_hash
from coding_model_project.grading.base import Grader
from coding_model_project.grading.brief import brief
from coding_model_project.grading.judge import AnyGrader
from coding_model_project.grading.prompts import Message, solve_messages
from coding_model_project.grading.readings import CountedBy, accepted, error_of
from coding_model_project.progress import bars
from coding_model_project.runs.rollouts import Rollout
from coding_model_project.strict_json import encodable
from coding_model_project.types import Verdict

_BACKLOG = 2048
"""Maximum samples waiting for the judge before generation pauses, to bound memory."""


Progress = Callable[[Generated | Result], None]
"""A callback for each sample that was generated or judged."""


@dataclass(frozen=True, slots=True)
class Known:
    """Samples of earlier attempts."""

    generated: dict[Key, Generated]
    judged: dict[Key, Result]


def read_known(
    completions: Journal[Generated], results: Journal[Result], planned: Iterable[Sample]
) -> Known:
    """Read the samples of earlier attempts.

    Removes results without a verdict, to judge them again, and results whose completion is lost, as
    after a power failure.

    Raises:
        DataError: a line is damaged, a duplicate, or of a sample that is not planned.
    """
    seeds = {sample.key: sample.seed for sample in planned}
    generated: dict[Key, Generated] = {}
    for number, one in enumerate(completions.rows(), 1):
        if seeds.get(one.key) != one.seed or one.key in generated:
            raise DataError(
                f"{completions.path}, line {number}: sample {one.sample} of {one.problem} is "
                f"{'a duplicate' if one.key in generated else 'not of this evaluation'}"
            )
        generated[one.key] = one
    rows = results.rows()
    kept = [result for result in rows if result.ungradable is None and result.key in generated]
    judged = {result.key: result for result in kept}
    if len(judged) < len(kept):
        raise DataError(f"{results.path}: has duplicate samples")
    if len(kept) < len(rows):
        results.rewrite(kept)
    return Known(generated, judged)


@dataclass(kw_only=True)
class Runner:
    """A pipeline that generates and judges samples."""

    backend: Backend
    public: AnyGrader
    """The grader by public tests, which protocols with repair need."""
    grader: Grader
    """The grader that follows the protocol."""
    protocol: EvalProtocol
    completions: Journal[Generated]
    results: Journal[Result]
    rollouts: Journal[Rollout]
    """The same samples for readers of runs (`outputs.rollout_of`)."""
    known: Known
    """Samples already generated or judged."""
    progress: Progress

    def __post_init__(self) -> None:
        self._generating = asyncio.Semaphore(self.backend.concurrency)
        self._cost_s: dict[tuple[str, str], float] = {}

    async def run(self, samples: Sequence[Sample]) -> None:
        """Generate and judge missing samples, started in their order.

        Raises:
            GenerationError, SandboxError: the back end does not answer, or the public tests for a
                repair cannot be judged. All results so far are kept.
            StorageError: a file cannot be written.
        """
        missing = (sample for sample in samples if sample.key not in self.known.judged)
        await each(missing, self._sample, at_once=self.backend.concurrency + _BACKLOG)

    async def _sample(self, sample: Sample) -> None:
        generated = self.known.generated.get(sample.key)
        if generated is None:
            async with self._generating:
                generated = await self._generate(sample)
            self.completions.append(generated)
            self.progress(generated)
        protocol = self.protocol
        result = await judged(
            sample, generated, self.grader, stop_early=protocol.stop_early, rule=protocol.rule
        )
        self.results.append(result)
        self.rollouts.append(rollout_of(sample.problem, generated, result, protocol))
        self.progress(result)

    async def _generate(self, sample: Sample) -> Generated:
        started = time.monotonic()
        made: Sequence[Attempt[Completion]] = ()
        refused = None
        try:
            made = await attempts(
                _Model(self.backend, self.protocol, sample),
                lambda answer: self._look(sample, answer),
                rounds=self.protocol.repair_rounds,
            )
        except PromptError as error:
            refused = f"{type(error).__name__}: {error}"
        last = made[-1].answer if made else Completion(text="", n_tokens=0)
        counted = [attempt.answer.n_reasoning_tokens for attempt in made]
        known = [n for n in counted if n is not None]
        return Generated(
            dataset=sample.dataset,
            problem=sample.problem.id,
            sample=sample.number,
            seed=sample.seed,
            completion=encodable(last.text),
            tokens=sum(attempt.answer.n_tokens for attempt in made),
            truncated=last.truncated,
            reasoning=encodable(last.reasoning),
            reasoning_tokens=sum(known) if known else None,
            refused=refused,
            seconds=round(time.monotonic() - started, 3),
            at=round(time.time(), 3),
            attempts=[_plain(attempt) for attempt in made] if self.protocol.repair_rounds else [],
        )

    async def _look(self, sample: Sample, answer: Completion) -> Seen:
        protocol = self.protocol
        try:
            seen = await look_at(
                sample.problem,
                answer.text,
                self.public,
                style=protocol.prompt,
                max_bytes=protocol.observation_bytes,
            )
        except SandboxError:
            raise
        except UngradableError:  # the problem is broken, which judging its hidden tests reports
            return Seen()
        # A cache hit costs what the original run cost.
        key = sample.problem.id, answer.text
        self._cost_s[key] = max(seen.judge_s, self._cost_s.get(key, 0.0))
        return replace(seen, judge_s=round(self._cost_s[key], 4))


async def judged(
    sample: Sample, generated: Generated, grader: Grader, *, stop_early: bool, rule: CountedBy
) -> Result:
    """Judge one completion.

    Args:
        stop_early: the grader stops at the first failing test, so the pass fraction of a failing program
            is unknown.
        rule: see `EvalProtocol.rule`.

    Returns:
        The result; without a verdict and with the reason if the sample is ungradable.
    """
    verdict: Verdict | None = None
    why, judge_s = generated.refused, 0.0
    if why is None:
        try:
            verdict = await grader.grade(sample.problem, generated.completion)
            judge_s = verdict.judge_s
        except UngradableError as error:
            judge_s = error.judge_s
            why = f"{type(error).__name__}: {error}"
    counted = generated.reasoning_tokens
    estimate = generated.estimated_reasoning_tokens if counted is None else None
    return Result(
        dataset=sample.dataset,
        problem=sample.problem.id,
        sample=sample.number,
        passed=accepted(verdict, rule) if verdict else None,
        # Without it if judging stopped at the first failing test.
        pass_fraction=verdict.pass_fraction
        if verdict and (verdict.passed or not stop_early)
        else None,
        error=error_of(verdict, rule) if verdict else None,
        ungradable=why,
        tokens=generated.tokens,
        truncated=generated.truncated,
        judge_s=round(judge_s, 4),
        reasoning_tokens=estimate if counted is None else counted,
        reasoning_estimated=estimate is not None,
        cut_in_reasoning=generated.cut_in_reasoning,
        repairs=max(0, len(generated.attempts) - 1),
        repair_s=round(generated.public_judge_s, 4),
        at=round(time.time(), 3),
        program=program_hash(verdict.code) if verdict and verdict.code is not None else None,
        verdict=brief(verdict, sample.problem.hidden_tests, public_passed=None) if verdict else {},
    )


# ── progress ──────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def evaluation_bar(total: int, generated: int, judged: int) -> Iterator[Progress]:
    """Show two bars on standard error; if that is not a terminal, print only their final state.

    Args:
        total: number of samples.
        generated, judged: numbers of samples that earlier attempts generated and judged.
    """
    with bars("{task.description:9}", "{task.fields[rate]}") as shown:
        generating = shown.add_task("generated", total=total, completed=generated, rate="")
        judging = shown.add_task("judged", total=total, completed=judged, rate="")
        started = shown.get_time()
        tokens = n_judged = n_passed = 0

        def update(done: Generated | Result) -> None:
            nonlocal tokens, n_judged, n_passed
            seconds = max(shown.get_time() - started, 1e-3)
            if isinstance(done, Generated):
                tokens += done.tokens
                shown.update(generating, advance=1, rate=f"{tokens / seconds:,.0f} tok/s")
            else:
                n_judged += 1
                n_passed += bool(done.passed)
                rate = f"{n_judged / seconds:.1f}/s, {n_passed / n_judged:.0%} pass"
                shown.update(judging, advance=1, rate=rate)

        yield update


# ── episodes ──────────────────────────────────────────────────────────────────────────────────────


def _plain(attempt: Attempt[Completion]) -> dict[str, Any]:
    """Return an attempt as plain values for completions.jsonl."""
    return {
        "completion": encodable(attempt.answer.text),
        "tokens": attempt.answer.n_tokens,
        "public_error": attempt.public_error,
        "observation": attempt.observation and encodable(attempt.observation),
        "judge_s": attempt.judge_s,
    }


class _Model:
    """Adapter of a back end to `episodes.repair.Model`."""

    def __init__(self, backend: Backend, protocol: EvalProtocol, sample: Sample) -> None:
        self._backend, self._protocol, self._sample = backend, protocol, sample
        self._messages = solve_messages(
            sample.problem, style=protocol.prompt, system=protocol.system_prompt
        )

    async def answer(self, repairs: int) -> Completion | None:
        sample = self._sample
        key = sample.dataset, sample.problem.id, repairs
        seed = sample_seed(sample.seed, key) if repairs else sample.seed
        try:
            made = await self._backend.complete(self._messages, self._protocol.sampling, seed)
        except PromptError:  # the conversation is too long: keep the last answer
            if not repairs:
                raise
            return None
        self._messages = [*self._messages, {"role": "assistant", "content": made.text}]
        return made

    async def tell(self, message: Message) -> bool:
        self._messages = [*self._messages, message]
        return True
