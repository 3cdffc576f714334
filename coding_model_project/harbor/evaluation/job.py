"""A resumable Harbor job: a model attempts a folder of Harbor tasks, with the bash agent or a command.

    JOB/config.json, result.json   the job's own files in Harbor's format
    JOB/TASK__7chars/result.json   a finished trial; written last and atomically (`outcome`)

The trials' folders are the only journal: Harbor's own commands read them, and a second one could
contradict them. Resuming after a kill removes the folders without a result and runs their trials again;
finished trials are kept. Trials that an outage ended run again too: unlike a completion
(`evaluation.runner`), an episode cannot be judged later, because its room is gone. The circuit breaker is
therefore here and not in the judge.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from coding_model_project.concurrency import each
from coding_model_project.episodes.bash import Calls, Episode, Limits
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.evaluation.backends.generation import Backend, Sampling
from coding_model_project.evaluation.results import refuse_another
from coding_model_project.grading.retries import CircuitBreaker
from coding_model_project.harbor.agents import BashAgent
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.evaluation.job_folder import AGENT_VERSION, Job, Worked
from coding_model_project.harbor.evaluation.models import BackendModel, ServedSession
from coding_model_project.harbor.failures import REGISTRY_UNREACHABLE, AgentAskedNothing
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.gateway.gateway_agent import GatewayAgent, Work
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import Limits as SessionLimits
from coding_model_project.harbor.harbor_config import AgentConfig
from coding_model_project.harbor.outcome import (
    CONFIG_FILE,
    RESULT_FILE,
    TrialOutcome,
    TrialResult,
    read_trials,
)
from coding_model_project.harbor.trajectory import of_conversations, of_episode
from coding_model_project.harbor.trial import Trials
from coding_model_project.progress import Advance

_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An evaluation's settings. Resuming requires the same ones."""

    model: str
    attempts: int
    environment: str
    """Name of the environments (`factory.environments_of`)."""
    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    calls: Calls = Calls.block
    agent_config: AgentConfig = field(default_factory=AgentConfig)
    """The agent if it is `on`, else the bash agent works."""
    context_tokens: int = 131_072
    """The tokens of context that the agent is told about."""

    @property
    def agent_name(self) -> str:
        return GatewayAgent.name if self.agent_config.on else BashAgent.name

    @property
    def about(self) -> dict[str, str]:
        """The agent as trajectories name it."""
        return {"name": self.agent_name, "version": AGENT_VERSION, "model_name": self.model}

    @property
    def agent(self) -> dict[str, Any]:
        """The agent's entry in a job's configuration."""
        settings: dict[str, Any] = {
            **asdict(self.limits),
            "temperature": self.sampling.temperature,
            "max_tokens": self.sampling.max_tokens,
        }
        if self.calls is not Calls.block:  # keeps jobs without this setting resumable
            settings["calls"] = str(self.calls)
        if (given := self.agent_config).on:
            chosen = ("command", "folder", "env")
            settings |= {name: getattr(given, name) for name in chosen}
            settings |= {"place": str(given.place), "context_tokens": self.context_tokens}
        return {"name": self.agent_name, "model_name": self.model, "kwargs": settings}


class Evaluation(Job):
    """One job in its folder, which must exist and be used by this process only.

    Args:
        tasks: the runnable tasks.
    """

    def __init__(self, job: Path, tasks: Sequence[Task], asked: Asked) -> None:
        super().__init__(job, asked.agent, asked.environment)
        self._tasks, self._asked = tasks, asked

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Load finished trials; on leaving, rewrite the job's own files.

        Raises:
            ConfigError: the folder holds something else.
            DataError: a result in it is damaged.
        """
        self._resume()
        tasks = [{"path": str(task.path), "source": task.source} for task in self._tasks]
        config = {"n_attempts": self._asked.attempts, "tasks": tasks}
        try:
            self.write(self.n_total, **config)
            yield
        finally:
            self.write(self.n_total, **config)

    def missing(self) -> list[tuple[Task, int]]:
        """Return tasks and attempts without a trial, the first attempts of all tasks first."""
        done = {(one.source, one.path, one.attempt) for one in self.trials}
        return [
            (task, attempt)
            for attempt in range(self._asked.attempts)
            for task in self._tasks
            if (task.source, str(task.path), attempt) not in done
        ]

    @property
    def sources(self) -> list[str]:
        """The names of the tasks' data sets, in order."""
        return list(dict.fromkeys(task.source for task in self._tasks))

    @property
    def n_total(self) -> int:
        return len(self._tasks) * self._asked.attempts

    async def run(
        self,
        trials: Trials,
        backend: Backend,
        gateway: Gateway,
        concurrency: int,
        advance: Advance,
    ) -> None:
        """Run the missing trials, and write each one when it ends.

        Raises:
            ConfigError: the endpoint rejects all requests with these settings.
            SandboxError: outages ended most of the latest trials.
        """
        breaker = CircuitBreaker(window=20, max_rate=0.5, min_samples=max(5, concurrency))

        async def one(missing: tuple[Task, int]) -> None:
            breaker.check()
            ended = await self._one(trials, backend, gateway, *missing)
            is_its_own = REGISTRY_UNREACHABLE in ended.exceptions  # other tasks need other images
            failed = ended.is_outage and not is_its_own
            breaker.record(SandboxError(ended.error) if failed else None)
            advance()

        await each(self.missing(), one, at_once=concurrency)

    async def _one(
        self, trials: Trials, backend: Backend, gateway: Gateway, task: Task, attempt: int
    ) -> TrialResult:
        asked = self._asked
        if asked.agent_config.on:
            outcome, worked = await self._by_agent(trials, backend, gateway, task, attempt)
        else:
            model = BackendModel(backend, asked.sampling, attempt, asked.calls)
            agent = BashAgent(model, asked.limits, asked.calls)
            outcome = await trials.run(task, agent)
            worked = [_of_episode(one, asked.about) for one in agent.episodes]
        for error in outcome.errors:
            if isinstance(error, ConfigError):
                raise error
        return self.add(outcome, worked, attempt=attempt)

    async def _by_agent(
        self, trials: Trials, backend: Backend, gateway: Gateway, task: Task, attempt: int
    ) -> tuple[TrialOutcome, list[Worked]]:
        """Let the agent's command work; one that asked the model nothing is an outage."""
        asked = self._asked
        config, limits = asked.agent_config, asked.limits

        def begin(environment: Environment, user: str | int | None) -> ServedSession:
            return ServedSession(
                backend,
                asked.sampling,
                attempt,
                SessionLimits(
                    turns=limits.turns,
                    command_s=limits.command_s,
                    context_tokens=asked.context_tokens,
                ),
                environment=environment,
                user=user,
            )

        agent = GatewayAgent(config=config, gateway=gateway, begin=begin)
        outcome = await trials.run(task, agent)
        sessions = ((work, work.session) for work in agent.works)
        silent = next((w for w, s in sessions if not s.recorder.turns and s.refused is None), None)
        if silent is not None and not outcome.errors:
            said = silent.said[-_SHOWN_CHARS:] or "it printed nothing"
            why = f"the agent ended ({silent.ending}) before it asked the model: {said!r}"
            outcome = replace(outcome, rewards=None, error=AgentAskedNothing(why))
        return outcome, [_of_agent(work, asked.about) for work in agent.works]

    # ── the folder ────────────────────────────────────────────────────────────────────────────────

    def _resume(self) -> None:
        job = self.folder
        existing = [
            path for path in job.iterdir() if path.name != ".lock" and path.suffix != ".partial"
        ]
        if not existing:
            return
        config = job / CONFIG_FILE
        if not config.exists():
            raise ConfigError(f"--out={job}: holds no evaluation; choose a new folder")
        before = orjson.loads(config.read_bytes())
        agents = before.get("agents") or []
        agent = agents[0] if len(agents) == 1 else {}  # those of Harbor's own may have several
        environment = {"environment": before.get("environment")}
        asked = {**self.agent, "environment": self.environment}
        if not agent or any(
            job.glob(f"*/{RESULT_FILE}")
        ):  # one without a trial is bound to nothing
            refuse_another(job, {**agent, **environment}, asked)
        if (result := job / RESULT_FILE).exists():
            before = orjson.loads(result.read_bytes())
            self.id = UUID(before["id"])
            self.started = datetime.fromisoformat(before["started_at"])
        found = {trial.trial_name: trial for trial in read_trials(job)}
        for folder in (path for path in existing if path.is_dir()):
            trial = found.get(folder.name)
            if trial is None or trial.is_outage:
                shutil.rmtree(folder)
            else:
                self.trials.append(trial)
        digests = {(task.source, str(task.path)): task.digest() for task in self._tasks}
        for trial in self.trials:
            if digests.get((trial.source, trial.path)) != trial.digest:
                raise ConfigError(
                    f"--out={job}: {trial.trial_name} is a trial of {trial.path} in {trial.source}, "
                    "which has changed since or is not among these tasks; choose a new folder"
                )


def _of_episode(episode: Episode, about: Mapping[str, str]) -> Worked:
    replies = [turn.reply for turn in episode.turns]
    return Worked(
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        completion_tokens=sum(reply.tokens for reply in replies),
        metadata={
            "ending": episode.ending,
            "turns": len(replies),
            "commands_s": round(sum(turn.command_s for turn in episode.turns), 3),
        },
        trajectory=of_episode(episode, about),
    )


def _of_agent(work: Work, about: Mapping[str, str]) -> Worked:
    session = work.session
    turns, ends = session.recorder.turns, session.recorder.ends()
    return Worked(
        prompt_tokens=sum(turn.answer.prompt_tokens for turn in turns),
        completion_tokens=session.recorder.n_generated + session.n_undelivered,
        metadata={
            "ending": work.ending,
            "turns": len(turns),
            "commands_s": round(sum(session.commands), 3),
            "conversations": len(ends),
            "exit_code": work.exit_code,
            "said": work.said,
            "ignored": sorted(session.ignored),
        },
        trajectory=of_conversations(session.recorder, about),
    )
