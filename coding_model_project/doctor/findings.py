"""Findings of checks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Effect of a finding on training."""

    ok = "ok"
    warning = "warning"
    """Training works, but slower or with something missing."""
    problem = "problem"
    """Training will fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    status: Status
    finding: str
    """The observation, in one line."""
    remedy: str = ""
    """The action to take, in one line; empty without one."""


def ok(name: str, finding: str) -> Finding:
    return Finding(name=name, status=Status.ok, finding=finding)


def warning(name: str, finding: str, remedy: str = "") -> Finding:
    return Finding(name=name, status=Status.warning, finding=finding, remedy=remedy)


def problem(name: str, finding: str, remedy: str) -> Finding:
    return Finding(name=name, status=Status.problem, finding=finding, remedy=remedy)
