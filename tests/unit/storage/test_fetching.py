"""Errors of stores, in one line."""

import errno

from coding_model_project.errors import ConfigError
from coding_model_project.storage.store_errors import explained

# Errors that no store raised: this machine's own.


def test_a_folder_here_that_cannot_be_written_is_not_blamed_on_the_credentials():
    error = PermissionError(errno.EACCES, "Permission denied", "/cache/runs")
    told = explained(error, "s3://bucket/run")
    assert isinstance(told, ConfigError)
    assert str(told) == "s3://bucket/run: /cache/runs: permission denied on this machine"
