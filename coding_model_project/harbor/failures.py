"""What can go wrong with a Harbor task, by the names Harbor records, and whose fault it is.

HarborError
├── InvalidTask                the folder or its task.toml cannot be used; Harbor refuses it too
│   └── MissingVariable        a ${VAR} of the task that the host does not set
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

from enum import StrEnum
from typing import ClassVar

from coding_model_project.errors import HarborError


class InvalidTask(HarborError):
    """A folder that is no usable task. Names the file or key."""


class MissingVariable(InvalidTask):
    """A task needs an environment variable that is not set."""


class VerifierError(HarborError):
    """The verifier ran, or should have, and there is no reward."""

    harbor_name: ClassVar[str | None] = None
    """Harbor's name where it is not the class's own."""


class VerifierTimeoutError(VerifierError):
    """It did not end in time; a reward it had written by then does not count."""


class RewardFileNotFoundError(VerifierError):
    """It wrote neither reward.json nor reward.txt."""


class RewardFileEmptyError(VerifierError):
    """The reward file has no bytes."""


class VerifierOutputParseError(VerifierError):
    """The reward file holds no finite number, or no flat object of them."""


class RewardRangeError(VerifierOutputParseError):
    """A reward outside the range that was declared."""

    harbor_name = "VerifierOutputParseError"


class RewardIsDirectoryError(VerifierError):
    """The reward file is a directory."""

    harbor_name = "IsADirectoryError"


class RewardNotAnObjectError(VerifierError):
    """reward.json holds a bare number."""

    harbor_name = "ValidationError"


def exception_type(error: BaseException) -> str:
    """The name Harbor records for an exception."""
    named = getattr(error, "harbor_name", None)
    return named or type(error).__name__


class FailureCause(StrEnum):
    """Who or what ended a trial, as Harbor groups it."""

    sandbox_failed = "sandbox_failed"
    model_provider_failed = "model_provider_failed"
    harbor_failed = "harbor_failed"
    unclassified = "unclassified"
    agent_exhausted_budget = "agent_exhausted_budget"
    agent_refused_task = "agent_refused_task"
    verifier_failed = "verifier_failed"
    cancelled = "cancelled"

    @property
    def reward_valid(self) -> bool:
        """Whether a reward still measures the agent: only it ended the trial."""
        return self in (FailureCause.agent_exhausted_budget, FailureCause.agent_refused_task)


_NAMES: dict[FailureCause, str] = {
    FailureCause.sandbox_failed: (
        "EnvironmentStartTimeoutError SandboxBuildFailedError AgentSetupTimeoutError "
        "HealthcheckError SandboxLikelyOutOfMemoryError MemoryLimitExceededError SSHAccessError "
        "GKEExecStreamClosedError GKEPodNotFoundError RuntimeRequestError AddTestsDirError "
        "DownloadVerifierDirError "
        "EnvironmentFailed"  # ours
    ),
    FailureCause.model_provider_failed: (
        "ApiError ApiRateLimitError ApiInternalServerError ApiOverloadedError "
        "ApiConnectionClosedError ApiResponseStalledError UnknownApiError NetworkConnectionError "
        "ApiConnectionError ApiUsageLimitError RateLimitError InternalServerError "
        "ServiceUnavailableError APIConnectionError APIError Timeout BadRequestError "
        "UnprocessableEntityError UnsupportedParamsError APIResponseValidationError "
        "BudgetExceededError AgentAuthenticationError ModelNotFoundError "
        "ApiProviderResourceNotFoundError AuthenticationError PermissionDeniedError NotFoundError"
    ),
    FailureCause.harbor_failed: (
        "ServiceOperationsUnsupportedError VercelScopeError DspyImportError MissingExtraError "
        "RegradeError"
    ),
    FailureCause.agent_exhausted_budget: (
        "AgentTimeoutError ContextWindowExceededError OutputTokenExceededError "
        "ContextLengthExceededError OutputLengthExceededError"
    ),
    FailureCause.agent_refused_task: "AgentSafetyRefusalError ContentPolicyViolationError",
    FailureCause.verifier_failed: (
        "VerifierTimeoutError RewardFileNotFoundError RewardFileEmptyError VerifierOutputParseError"
    ),
    FailureCause.cancelled: "CancelledError",
}
_CAUSES = {name: cause for cause, names in _NAMES.items() for name in names.split()}


def failure_cause(exception_type: str) -> FailureCause:
    """The cause that Harbor 0.25 gives an exception of this name; `unclassified` for any other."""
    return _CAUSES.get(exception_type, FailureCause.unclassified)
