"""The outcome of a trial, step by step: rewards, errors by Harbor's names, and reasons for doubt."""

from __future__ import annotations

from dataclasses import dataclass, field

from coding_model_project.harbor.environment.tree import Tree
from coding_model_project.harbor.failures import FailureCause, exception_type, failure_cause
from coding_model_project.harbor.format.reward_rules import Rewards, reward_valid
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.integrity import Integrity

MOST_KEPT = 4 << 20
"""Bytes of /logs/verifier that an outcome keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The outcome of one step."""

    name: str | None
    rewards: Rewards | None = None
    error: Exception | None = None
    doubts: tuple[str, ...] = ()
    """Reasons for which the rewards may be the agent's own doing (`Environment.doubts`)."""
    verifier_output: str = ""
    """Output of the tests; the middle of it is left out if it is long."""
    verifier_files: Tree = field(default_factory=Tree)
    """Files in /logs/verifier, rewards included; only the rewards if all are more than `MOST_KEPT`."""
    artifacts: Tree = field(default_factory=Tree)
    agent_s: float = 0.0
    verifier_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """The outcome of one attempt at a task."""

    task: Task
    rewards: Rewards | None
    error: Exception | None
    """The end of the trial. Of a task with steps, the end of one is in the step alone."""
    steps: tuple[StepOutcome, ...]
    notes: tuple[str, ...] = ()
    """Parts of the environment's definition that were passed over."""
    wall_s: float = 0.0

    @property
    def integrity(self) -> Integrity:
        """`in_process` if a verifier of any step ran the agent's code, or cannot be shown not to have."""
        return Integrity.of(self.doubts)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Of all steps."""
        return tuple(dict.fromkeys(doubt for step in self.steps for doubt in step.doubts))

    @property
    def exception(self) -> str | None:
        """Harbor's name for what ended the trial."""
        return None if self.error is None else exception_type(self.error)

    @property
    def failure_cause(self) -> FailureCause | None:
        """Who or what ended the trial, or the first step that something ended."""
        names = self._exceptions()
        return failure_cause(names[0]) if names else None

    @property
    def reward_valid(self) -> bool:
        """True if the rewards measure the agent, and not an outage."""
        return reward_valid(self.rewards, self._exceptions())

    def _exceptions(self) -> list[str]:
        errors = [self.error] if self.error is not None else []
        if self.task.has_steps:
            errors += [step.error for step in self.steps if step.error is not None]
        return [exception_type(error) for error in errors]
