"""Everything this package raises on purpose.

    CodingModelError
    ├── ConfigError        wrong usage: a key, path or combination the user can correct   exit 2
    ├── CheckpointError    a checkpoint could not be recorded, uploaded or restored       exit 3
    ├── TrainingError      a process of a training failed or died                         exit 3
    ├── ClusterError       nodes of a Ray cluster are out of reach, unlike, or gone       exit 3
    ├── GenerationError    a model's engine or server does not answer, after retries      exit 3
    ├── StorageError       what was to be kept could not be written: a full disk          exit 3
    ├── JobError           a scheduler, cluster or service does not do its part for a job   exit 3
    ├── DownloadError      the hub of data sets does not answer, or the network is down   exit 3
    └── UngradableError    no truthful verdict can be given; never becomes a score        exit 3
        ├── SandboxError   the sandbox itself could not do its work, after retries
        ├── CheckerError   a problem's checker program failed
        ├── HarborError    a Harbor task or its verifier gave no reward (harbor/failures.py)
        └── DataError      a file or a problem's own data is unusable                      exit 2
            └── PromptError    its prompt is more than the model can take                  exit 2

A `DataError` that ends a command comes from a file or an option of the user, so it exits with 2. During
an evaluation or a training it concerns one problem, and like every `UngradableError` it is not a score.

A program that crashes, hangs or lies is a value (`types.Execution`), never one of these.
"""

INTERRUPTED = 130
"""Exit code of what a user or a cluster asked to stop; the others are `CodingModelError.exit_code`."""


class CodingModelError(Exception):
    """Base of all deliberate errors. The message is one line: what is wrong, and the way out."""

    exit_code = 3


class ConfigError(CodingModelError):
    """The user asked for something that cannot work. Names the key, path or value."""

    exit_code = 2


class CheckpointError(CodingModelError):
    """A checkpoint could not be recorded, uploaded or restored."""


class TrainingError(CodingModelError):
    """A process of a training failed or died. The message is the one that says why."""


class ClusterError(CodingModelError):
    """Nodes of a Ray cluster cannot do their part. Names the node, and what makes it fit."""


class GenerationError(CodingModelError):
    """A model's engine or server does not answer. Never an empty completion."""


class StorageError(CodingModelError):
    """Something could not be written. Names the file; what was written before is whole."""


class JobError(CodingModelError):
    """A scheduler, cluster or service does not answer, or fails. A wrong option is a `ConfigError`."""


class DownloadError(CodingModelError):
    """A data set could not be downloaded. A wrong name is a `ConfigError`; this is the network."""


class UngradableError(CodingModelError):
    """No truthful verdict can be given. Infrastructure failures are never scores."""


class SandboxError(UngradableError):
    """The sandbox could not run the program, for a reason the program cannot cause."""


class CheckerError(UngradableError):
    """A problem's checker program failed."""


class HarborError(UngradableError):
    """A Harbor task cannot be used, or a trial of it ended without a reward."""


class DataError(UngradableError):
    """A file or a problem's data is malformed: no tests, an unknown comparison, a missing field."""

    exit_code = 2


class PromptError(DataError):
    """A model cannot be asked: the prompt is more than it can take."""
