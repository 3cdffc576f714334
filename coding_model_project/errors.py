"""The exceptions that this package raises, and their exit codes.

    CodingModelError
    ├── ConfigError        wrong usage: a key, path or combination that the user can correct   exit 2
    ├── CheckpointError    a checkpoint could not be recorded, uploaded or restored       exit 3
    ├── TrainingError      a process of a training run failed or died                     exit 3
    ├── ClusterError       nodes of a Ray cluster are unreachable, unlike or lost         exit 3
    ├── GenerationError    a model's engine or server does not answer, after retries      exit 3
    ├── StorageError       a result could not be written, for example on a full disk      exit 3
    ├── JobError           a job's scheduler, cluster or service does not answer or fails  exit 3
    ├── DownloadError      the data set hub does not answer, or the network is down       exit 3
    └── UngradableError    no truthful verdict is possible; never becomes a score         exit 3
        ├── SandboxError   the sandbox itself failed, after retries
        │   └── OverloadError  the machine had too little memory or CPU time for the program
        ├── CheckerError   a problem's checker program failed
        ├── HarborError    a Harbor task or its verifier gave no reward (harbor/failures.py)
        └── DataError      a file or a problem's own data is unusable                      exit 2
            └── PromptError    a prompt is longer than the model accepts                   exit 2
                └── FilteredError  a server's content filter rejected a prompt or ended its answer

A `DataError` that ends a command comes from a file or an option of the user, so it exits with 2. During
an evaluation or a training run it concerns one problem and, like every `UngradableError`, is not a score.

A program that crashes, hangs or lies is a value (`types.Execution`), never one of these.
"""

from coding_model_project.redaction import redacted

INTERRUPTED = 130
"""Exit code after an interrupt by a user or a cluster; the others are `CodingModelError.exit_code`."""


class CodingModelError(Exception):
    """Base of all errors of this package. The message is one line: what is wrong, and how to fix it.

    It shows no password or token of a URL.
    """

    exit_code = 3

    def __str__(self) -> str:
        return redacted(super().__str__())


class ConfigError(CodingModelError):
    """Wrong usage or configuration. Names the key, path or value."""

    exit_code = 2


class CheckpointError(CodingModelError):
    """A checkpoint that could not be recorded, uploaded or restored."""


class TrainingError(CodingModelError):
    """A failed or dead process of a training run. The message says why."""


class ClusterError(CodingModelError):
    """Unusable nodes of a Ray cluster. Names the node and the fix."""


class GenerationError(CodingModelError):
    """A model's engine or server that does not answer. Never an empty completion."""


class StorageError(CodingModelError):
    """A failed write. Names the file; everything written before it is intact."""


class JobError(CodingModelError):
    """A scheduler, cluster or service that does not answer or fails. Wrong options are `ConfigError`s."""


class DownloadError(CodingModelError):
    """A failed download of a data set because of the network. A wrong name is a `ConfigError`."""


class UngradableError(CodingModelError):
    """A completion without a truthful verdict. Infrastructure failures are never scores.

    Attributes:
        judge_s: wall seconds for which the judge was busy until it failed; they cost as much as a
            verdict's.
    """

    judge_s = 0.0


class SandboxError(UngradableError):
    """A sandbox that could not run the program, for a reason that the program cannot cause."""


class OverloadError(SandboxError):
    """A machine that ended a program for lack of memory, or gave it hardly any CPU time."""


class CheckerError(UngradableError):
    """A failure of a problem's checker program."""


class HarborError(UngradableError):
    """An unusable Harbor task, or a trial that ended without a reward."""


class DataError(UngradableError):
    """Malformed data of a file or a problem: no tests, an unknown comparison, a missing field."""

    exit_code = 2


class PromptError(DataError):
    """A prompt that is longer than the model accepts."""


class FilteredError(PromptError):
    """A prompt that a server's content filter rejects, or whose answer it ended."""
