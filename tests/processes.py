"""Processes that tests have started, found by their command lines."""

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil


def ran(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return what it printed and its exit code."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def command_line(process: psutil.Process) -> str:
    """Its command line; "" of one that has ended, which may be a zombie until it is waited for."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def ended(process: psutil.Process) -> bool:
    """It has ended; its parent or init may not have waited for it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def below(word: str) -> list[psutil.Process]:
    """This process's children with `word` in their command line, each before all that it started.

    Not all its children: Ray's may be among them when training tests ran before, and who kills one
    of those ends the whole test run.
    """
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        if word in command_line(child):
            found.append(child)
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                found += child.children(recursive=True)
    return found
