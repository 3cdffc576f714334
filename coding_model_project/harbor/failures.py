"""Failures of a Harbor task, by the names that Harbor records, and their causes.

HarborError
├── InvalidTask                the folder or its task.toml is unusable; Harbor rejects it too
│   └── MissingVariable        a ${VAR} of the task that the host does not set
├── AgentAskedNothing          the agent ended before its first request to the model
├── VerifierUnusableError      the verifier lacked a network or a tool, whatever the agent did
└── VerifierError              the verifier gave no reward
    ├── VerifierTimeoutError
    ├── RewardFileNotFoundError
    ├── RewardFileEmptyError
    ├── VerifierOutputParseError
    │   └── RewardRangeError   finite, but outside the range the user declared
    ├── RewardIsDirectoryError     Harbor: IsADirectoryError
    └── RewardNotAnObjectError     Harbor: ValidationError
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from coding_model_project.errors import HarborError


class InvalidTask(HarborError):
    """A folder that is not a valid task. The message names the file or key."""


class MissingVariable(InvalidTask):
    """An environment variable that a task needs and the host does not set."""


class AgentAskedNothing(HarborError):
    """An agent that ended before its first request to the model, so that nothing measures the model."""


class VerifierUnusableError(HarborError):
    """A verifier that cannot work here, so that its reward of 0 is not the agent's."""


class VerifierError(HarborError):
    """A verifier that gave no reward."""

    harbor_name: ClassVar[str | None] = None
    """Harbor's name, if it differs from the class's own."""


class VerifierTimeoutError(VerifierError):
    """A verifier that timed out; rewards that it wrote before do not count."""


class RewardFileNotFoundError(VerifierError):
    """A verifier that wrote neither reward.json nor reward.txt."""


class RewardFileEmptyError(VerifierError):
    """An empty reward file."""


class VerifierOutputParseError(VerifierError):
    """A reward file that holds neither a finite number nor a flat object of finite numbers."""


class RewardRangeError(VerifierOutputParseError):
    """A reward outside the declared range."""

    harbor_name = "VerifierOutputParseError"


class RewardIsDirectoryError(VerifierError):
    """A reward file that is a directory."""

    harbor_name = "IsADirectoryError"


class RewardNotAnObjectError(VerifierError):
    """A reward.json that holds a bare number."""

    harbor_name = "ValidationError"


def exception_type(error: BaseException) -> str:
    """Return the name that Harbor records for an exception."""
    named = getattr(error, "harbor_name", None)
    return named or type(error).__name__


class FailureCause(StrEnum):
    """The cause of a trial's failure, by Harbor's groups."""

    sandbox_failed = "sandbox_failed"
    model_provider_failed = "model_provider_failed"
    harbor_failed = "harbor_failed"
    unclassified = "unclassified"
    agent_exhausted_budget = "agent_exhausted_budget"
    verifier_failed = "verifier_failed"

    @property
    def reward_valid(self) -> bool:
        """True if only the agent ended the trial, so that a reward still measures it."""
        return self is FailureCause.agent_exhausted_budget


BUILD_FAILED = "SandboxBuildFailedError"
"""Harbor's name for an environment that cannot be built."""

REGISTRY_UNREACHABLE = "RegistryUnreachable"
"""Our name for a registry of images that did not answer."""

UNBUILDABLE = "unbuildable"
"""The cause of such errors in counts: it is the task's property, and no outage."""

_OUTAGES = (FailureCause.sandbox_failed, FailureCause.model_provider_failed)

_NAMES: dict[FailureCause, str] = {
    FailureCause.sandbox_failed: (
        "EnvironmentStartTimeoutError SandboxBuildFailedError HealthcheckError "
        "EnvironmentFailed RegistryUnreachable AgentAskedNothing"  # ours
    ),
    FailureCause.model_provider_failed: "APIConnectionError BadRequestError",
    FailureCause.harbor_failed: "ServiceOperationsUnsupportedError",
    FailureCause.agent_exhausted_budget: "AgentTimeoutError",
    FailureCause.verifier_failed: (
        "VerifierTimeoutError RewardFileNotFoundError RewardFileEmptyError VerifierOutputParseError "
        "VerifierUnusableError"  # ours
    ),
}
"""The causes of exceptions that trials here can have; Harbor's own jobs know more."""
_CAUSES = {name: cause for cause, names in _NAMES.items() for name in names.split()}


def failure_cause(exception_type: str) -> FailureCause:
    """Return Harbor 0.25's cause for an exception name; `unclassified` for unknown names."""
    return _CAUSES.get(exception_type, FailureCause.unclassified)


def is_outage(exception_type: str) -> bool:
    """Return whether an exception of this name says nothing about task or model."""
    return exception_type != BUILD_FAILED and failure_cause(exception_type) in _OUTAGES


def is_unusable(exception_type: str) -> bool:
    """Return whether an exception of this name says that no agent can be judged on its task here."""
    return exception_type in (BUILD_FAILED, VerifierUnusableError.__name__)


def counted_cause(exception_types: Sequence[str], rewards: object = None) -> str:
    """Return why a trial has no valid reward, as reports count it.

    Args:
        rewards: of a trial without an exception; "no_main_reward" if none of several is named "reward".
    """
    if not exception_types:
        return "no_main_reward" if rewards else str(FailureCause.unclassified)
    first = exception_types[0]
    return UNBUILDABLE if first == BUILD_FAILED else str(failure_cause(first))
