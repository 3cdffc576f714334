"""metrics.jsonl of a run that may be resumed."""

from __future__ import annotations

import os

from verl.utils import tracking


class _AppendingFileLogger(tracking.FileLogger):
    """verl's file logger, but a resumed run adds to the file instead of emptying it.

    The steps between the last checkpoint and a kill are there twice; the later row counts.
    """

    def __init__(self, project_name: str, experiment_name: str) -> None:
        self.project_name, self.experiment_name = project_name, experiment_name
        self.filepath = os.environ["VERL_FILE_LOGGER_PATH"]
        self.fp = open(self.filepath, "ab", buffering=0)  # noqa: SIM115 - `finish` closes it


def append_metrics() -> None:
    """Make verl's tracking use the appending logger, in this process."""
    tracking.FileLogger = _AppendingFileLogger
