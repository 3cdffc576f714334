"""A reward function for TRL's trainers: `GRPOTrainer(reward_funcs=CodeReward(problems))`.

Does not import TRL, whose trainers only call it. `docs/trl.md` has examples.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from coding_model_project.api import Judge
from coding_model_project.concurrency import Background
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ConfigError, SandboxError, UngradableError
from coding_model_project.grading.base import Outcome
from coding_model_project.grading.prompts import PromptStyle, solve_messages
from coding_model_project.grading.retries import CircuitBreaker
from coding_model_project.grading.rewards import reward_function
from coding_model_project.integrations.given_problems import Problems, by_id, for_rewards, named
from coding_model_project.types import Problem

_log = logging.getLogger(__name__)

Completion = str | Sequence[Mapping[str, Any]]
"""TRL's form of a completion: text, or the messages of the model and its tools."""


class CodeReward:
    """A reward function that runs completions on their problems' hidden tests.

    The column `problem_id` of the data set names each row's problem. A sample that cannot be judged gets
    None, which TRL excludes from the group's mean and the loss; the log says how many and why. The
    sandbox starts with the first batch and stops with the process. Safe to use from threads and in
    forked processes, and picklable.

    Args:
        problems: the rows' problems, or a name or path for `cmp.load`.
        kind: "dense", the share of tests passed; "sparse", 1 if all passed, else 0; or
            "package.module:function" (`rewards.reward_function`).
        bare: completions are programs without a Markdown fence.
        column: the data set's column of problem ids.
        workers: programs judged at the same time; by default one per CPU core, shared among the
            processes that torchrun or `accelerate launch` started on this machine.
        sandbox: see `cmp.Judge`.
        min_tier: see `cmp.Judge`.
        max_lost_batches: end training after this many consecutive batches without a judged sample.
            Training also ends if the sandbox failed on a fifth of the last 200 samples.

    Raises:
        ConfigError: an argument is invalid, or there are no such problems.
    """

    def __init__(
        self,
        problems: Problems,
        *,
        kind: str = "dense",
        bare: bool = False,
        column: str = "problem_id",
        workers: int | None = None,
        sandbox: str | Sequence[str] = "embedded",
        min_tier: str = "seccomp",
        max_lost_batches: int = 3,
    ) -> None:
        if max_lost_batches < 1:
            raise ConfigError(f"max_lost_batches={max_lost_batches}: must be at least 1")
        self._problems = for_rewards(problems)
        self._settings: dict[str, Any] = {
            "kind": kind,
            "bare": bare,
            "column": column,
            "workers": workers,
            "sandbox": sandbox,
            "min_tier": min_tier,
            "max_lost_batches": max_lost_batches,
        }
        self._reward = reward_function(kind, "kind")
        self._column, self._max_lost = column, max_lost_batches
        self._lost_batches = 0
        self._breaker = CircuitBreaker()
        self.__name__ = f"code_{kind}"  # names TRL's metrics

        local = isinstance(sandbox, str) and sandbox == "embedded"

        def make() -> Judge:
            return Judge(
                workers=_share_of_cores() if workers is None and local else workers,
                sandbox=sandbox,
                bare=bare,
                stop_early=kind == "sparse",
                min_tier=min_tier,
            )

        make()  # rejects invalid arguments now, not in the first batch
        self._judge = Background(make)

    def __reduce__(self) -> tuple[Callable[..., CodeReward], tuple[Any, ...]]:
        problems = tuple(self._problems.values())
        return partial(type(self), **self._settings), (problems,)

    def __call__(
        self,
        completions: Sequence[Completion],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Judge a batch, as TRL calls it.

        Args:
            completions: the model's completions, in the order of the columns.
            log_metric: TRL's function, called with the shares of accepted and ungradable samples.
            columns: the data set's columns, with a value per completion, and TRL's other arguments to
                reward functions.

        Returns:
            A reward per completion, None if it could not be judged.

        Raises:
            ConfigError: there is no column of problem ids, or it names an unknown problem.
            UngradableError: the sandbox does not start or keeps failing, or no sample of
                `max_lost_batches` consecutive batches could be judged.
        """
        problems = self._problems_of(columns, len(completions))
        texts = [_text(completion) for completion in completions]
        outcomes = self._judge.run(
            lambda judge: judge.grade_many(problems, texts, return_errors=True)
        )
        self._look_at(outcomes)
        judged = [one for one in outcomes if not isinstance(one, UngradableError)]
        if log_metric is not None and outcomes:
            log_metric("judge/ungradable", 1 - len(judged) / len(outcomes))
            if judged:
                log_metric("judge/accepted", sum(one.passed for one in judged) / len(judged))
        return [
            None if isinstance(one, UngradableError) else self._reward(problem, one).total
            for problem, one in zip(problems, outcomes, strict=True)
        ]

    def _problems_of(self, columns: Mapping[str, Any], n: int) -> list[Problem]:
        if self._column not in columns:
            raise ConfigError(
                f"column={self._column}: the data set has no such column; add one with the id of each "
                "row's problem, or name it with CodeReward(column=...)"
            )
        ids = columns[self._column]
        if isinstance(ids, str) or len(ids) != n:
            raise ConfigError(f"column={self._column}: expected {n} ids, one per completion")
        return [named(self._problems, one, self._column) for one in ids]

    def _look_at(self, outcomes: Sequence[Outcome]) -> None:
        """Log samples that could not be judged, and end training if judging keeps failing."""
        errors = [one for one in outcomes if isinstance(one, UngradableError)]
        for one in outcomes:
            self._breaker.record(one if isinstance(one, SandboxError) else None)
        self._lost_batches = (
            self._lost_batches + 1 if errors and len(errors) == len(outcomes) else 0
        )
        if not errors:
            return
        counted = f"{len(errors)} of {len(outcomes)} samples could not be judged"
        first = f"{type(errors[0]).__name__}: {errors[0]}"
        _log.warning("%s and get no reward; the first: %s", counted, first)
        if self._lost_batches >= self._max_lost:
            raise SandboxError(
                f"no sample of {self._lost_batches} batches in a row could be judged, so training "
                f"stops; the last error: {first}"
            )
        try:
            self._breaker.check()
        except SandboxError:  # its message would repeat the one of the judge's own breaker
            raise SandboxError(
                f"judging keeps failing, so training stops; in this batch {counted}: {first}"
            ) from None


def rows(problems: Problems, *, bare: bool = False) -> list[dict[str, Any]]:
    """Make a data set's rows, `prompt` and `problem_id`, for `datasets.Dataset.from_list`.

    Args:
        problems: see `CodeReward`.
        bare: ask for programs without a Markdown fence.
    """
    style = PromptStyle.bare if bare else PromptStyle.fenced
    return [
        {"prompt": solve_messages(problem, style=style), "problem_id": problem.id}
        for problem in by_id(problems).values()
    ]


def _share_of_cores() -> int:
    """Return this process's share of the CPU cores, by torchrun's number of local processes."""
    return max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _text(completion: Completion) -> str:
    """Return a completion's answer: in a conversation, the text of the model's last message."""
    if isinstance(completion, str):
        return completion
    replies = [message for message in completion if message.get("role") == "assistant"]
    content = replies[-1].get("content") if replies else None
    if isinstance(content, str) or content is None:  # None: a message of tool calls only
        return content or ""
    return "".join(part.get("text") or "" for part in content)
