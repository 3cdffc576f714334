"""What a check answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What a finding means for training."""

    ok = "ok"
    warning = "warning"
    """It works, with something missing or slower."""
    problem = "problem"
    """Training will fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    status: Status
    finding: str
    """What is there, in one line."""
    remedy: str = ""
    """What to do, in one line; empty if there is nothing to do."""


def ok(name: str, finding: str) -> Finding:
    return Finding(name=name, status=Status.ok, finding=finding)


def warning(name: str, finding: str, remedy: str = "") -> Finding:
    return Finding(name=name, status=Status.warning, finding=finding, remedy=remedy)


def problem(name: str, finding: str, remedy: str) -> Finding:
    return Finding(name=name, status=Status.problem, finding=finding, remedy=remedy)
