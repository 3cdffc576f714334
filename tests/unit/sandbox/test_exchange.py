"""Answers of tests' processes pass through this package's processes without a trace."""

import subprocess
import sys

from tests.unit.sandbox.sources import SOURCES

SCAN = SOURCES["scan of memory"]


def test_an_answer_that_came_in_parts_leaves_no_copy_in_memory():
    """Every process that is forked later could find it."""
    done = subprocess.run([sys.executable, "-c", SCAN], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"0\n"
