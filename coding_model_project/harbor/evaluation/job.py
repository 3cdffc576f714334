"""A folder of Harbor tasks attempted by a model through the bash agent; a Harbor job that can be resumed.

    JOB/config.json, result.json      as Harbor keeps a job (`job_results`)
    JOB/TASK__7chars/result.json      a trial that is over; written last, and as a whole

The folders of the trials are the journal: Harbor's own commands read them, and a line elsewhere could
contradict them. A trial is what has a result: after a kill, folders without one are removed and their
trials run again, and no trial that has one is. Those that an outage ended run again too: an episode
cannot be judged later as a completion can (`evaluation.runner`), since its room is gone. The breaker is
for that reason here and not in the judge.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson

from coding_model_project.concurrency import each
from coding_model_project.episodes.bash import Episode, Limits, Turn
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.evaluation.backends.generation import Backend, Sampling
from coding_model_project.evaluation.results import refuse_another
from coding_model_project.grading.limiter import CircuitBreaker
from coding_model_project.harbor.bash_agent import BashAgent
from coding_model_project.harbor.evaluation.agent_model import BackendModel
from coding_model_project.harbor.evaluation.job_results import write_job
from coding_model_project.harbor.failures import FailureCause
from coding_model_project.harbor.format.digest import task_digest
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.trial_results import (
    CONFIG_FILE,
    RESULT_FILE,
    AgentResult,
    TrialResult,
    read_trials,
)
from coding_model_project.harbor.recording import Recorder, Worked
from coding_model_project.harbor.trial import Trials
from coding_model_project.harbor.trial_outcome import TrialOutcome
from coding_model_project.progress import Advance

OUTAGES = (FailureCause.sandbox_failed, FailureCause.model_provider_failed)
"""Causes of errors that say nothing about task or model; such a trial is run again on resuming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an evaluation is of; resuming takes the same."""

    model: str
    attempts: int
    environment: Mapping[str, str]
    """As Harbor's files call it."""
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    calls: Calls = Calls.block

    @property
    def agent(self) -> dict[str, Any]:
        """As a job's configuration calls it."""
        settings = {
            **asdict(self.limits),
            "temperature": self.sampling.temperature,
            "max_tokens": self.sampling.max_tokens,
        }
        if self.calls is not Calls.block:  # jobs from before there was a choice can be resumed
            settings["calls"] = str(self.calls)
        return {"name": BashAgent.name, "model_name": self.model, "kwargs": settings}


class Evaluation:
    """One job in its folder, which is there and is no other process's meanwhile.

    Args:
        tasks: those that can be run.
    """

    def __init__(self, job: Path, tasks: Sequence[Task], asked: Asked) -> None:
        self._job, self._tasks, self._asked = job.resolve(), tasks, asked
        self._id: UUID = uuid4()
        self._started = datetime.now(UTC)
        self.trials: list[TrialResult] = []
        """Those that are over, and were not ended by an outage before this process began."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Take up what is there; on leaving, the job's own files are written anew.

        Raises:
            ConfigError: the folder holds something else.
            DataError: a result in it is damaged.
        """
        self._take_up()
        try:
            self._write(finished=False)
            yield
        finally:
            self._write(finished=not self.missing())

    def missing(self) -> list[tuple[Task, int]]:
        """Tasks and attempts without a trial, the first attempts of all tasks first."""
        done = defaultdict(set)
        for trial in self.trials:
            done[trial.source, str(trial.task_id["path"])].add(_attempt(trial))
        return [
            (task, attempt)
            for attempt in range(self._asked.attempts)
            for task in self._tasks
            if attempt not in done[task.source, str(task.path)]
        ]

    @property
    def sources(self) -> list[str]:
        """The names of the data sets that the tasks are from, in order."""
        return list(dict.fromkeys(task.source for task in self._tasks))

    @property
    def n_total(self) -> int:
        return len(self._tasks) * self._asked.attempts

    async def run(
        self, trials: Trials, backend: Backend, concurrency: int, advance: Advance
    ) -> None:
        """Run what is missing. Each trial is kept as it ends.

        Raises:
            ConfigError: the endpoint will answer nothing that is asked like this.
            SandboxError: most trials of late were ended by outages.
        """
        breaker = CircuitBreaker(window=20, max_rate=0.5, min_samples=max(5, concurrency))

        async def one(missing: tuple[Task, int]) -> None:
            breaker.check()
            ended = await self._one(trials, backend, *missing)
            failed = ended.failure_cause in OUTAGES
            breaker.record(SandboxError(said(ended)) if failed else None)
            advance()

        await each(self.missing(), one, at_once=concurrency)

    async def _one(self, trials: Trials, backend: Backend, task: Task, attempt: int) -> TrialResult:
        calls = self._asked.calls
        model = BackendModel(backend, self._asked.sampling, attempt, calls)
        agent = BashAgent(model, self._asked.limits, calls)
        outcome = await trials.run(task, agent)
        for error in _errors(outcome):
            if isinstance(error, ConfigError):
                raise error
        kept = self._recorder.record(
            outcome,
            _worked(agent.episodes, model.prompt_tokens),
            {**self._asked.agent["kwargs"], "attempt": attempt},
        )
        self.trials.append(kept)
        return kept

    @property
    def _recorder(self) -> Recorder:
        asked = self._asked
        return Recorder(
            job=self._job,
            job_id=self._id,
            agent=BashAgent.name,
            environment=asked.environment,
            model=asked.model,
        )

    # ── the folder ────────────────────────────────────────────────────────────────────────────────

    def _take_up(self) -> None:
        there = [
            path
            for path in self._job.iterdir()
            if path.name != ".lock" and path.suffix != ".partial"
        ]
        if not there:
            return
        config = self._job / CONFIG_FILE
        if not config.exists():
            raise ConfigError(f"--out: {self._job} holds no evaluation; choose a new folder")
        before = orjson.loads(config.read_bytes())
        (agent,) = before.get("agents") or [{}]
        environment = {"environment": before.get("environment")}
        asked = {**self._asked.agent, "environment": dict(self._asked.environment)}
        refuse_another(self._job, {**agent, **environment}, asked)
        if (result := self._job / RESULT_FILE).exists():
            before = orjson.loads(result.read_bytes())
            self._id = UUID(before["id"])
            self._started = datetime.fromisoformat(before["started_at"])
        found = {trial.trial_name: trial for trial in read_trials(self._job)}
        for folder in (path for path in there if path.is_dir()):
            trial = found.get(folder.name)
            if trial is None or trial.failure_cause in OUTAGES:
                shutil.rmtree(folder)
            else:
                self.trials.append(trial)
        digests = {
            (task.source, str(task.path)): task_digest(task).partition(":")[2]
            for task in self._tasks
        }
        for trial in self.trials:
            path = str(trial.task_id["path"])
            if digests.get((str(trial.source), path)) != trial.task_checksum:
                raise ConfigError(
                    f"--out: {trial.trial_name} is a trial of {path} in {trial.source}, which has "
                    "changed since or is not among these tasks; choose a new folder"
                )

    def _write(self, *, finished: bool) -> None:
        config = {
            "n_attempts": self._asked.attempts,
            "agents": [self._asked.agent],
            "environment": dict(self._asked.environment),
            "tasks": [{"path": str(task.path), "source": task.source} for task in self._tasks],
        }
        write_job(
            self._job,
            self.trials,
            job_id=self._id,
            config=config,
            started_at=self._started,
            n_total=self.n_total,
            finished=finished,
        )


def said(trial: TrialResult) -> str:
    """What ended a trial, in one line."""
    recorded = (trial.exception_info, *(step.exception_info for step in trial.step_results or ()))
    first = next((one for one in recorded if one is not None), None)
    return f"{first.exception_type}: {first.exception_message}" if first else ""


def _attempt(trial: TrialResult) -> int:
    return int(trial.config["agent"].get("kwargs", {}).get("attempt", -1))


def _errors(outcome: TrialOutcome) -> list[Exception]:
    errors = [outcome.error, *(step.error for step in outcome.steps)]
    return [error for error in errors if error is not None]


def _worked(episodes: Sequence[Episode], prompt_tokens: Sequence[int]) -> list[Worked]:
    """What each episode used; `prompt_tokens` are those of all their replies, in order."""
    found, at = [], 0
    for episode in episodes:
        asked = prompt_tokens[at : at + len(episode.turns)]
        at += len(episode.turns)
        used = AgentResult(
            n_input_tokens=sum(asked),
            n_output_tokens=sum(turn.reply.tokens for turn in episode.turns),
            metadata={
                "ending": episode.ending,
                "turns": len(episode.turns),
                "commands_s": round(sum(turn.command_s for turn in episode.turns), 3),
                "timeline": [_timed(turn) for turn in episode.turns],
            },
        )
        found.append(Worked(used=used, conversation=episode.messages))
    return found


def _timed(turn: Turn) -> dict[str, Any]:
    """Seconds of a turn, and how its command ended."""
    return {
        "reply_s": round(turn.reply.seconds or 0.0, 3),
        "command_s": round(turn.command_s, 3),
        "exit_code": turn.exit_code,
    }
