"""The wire format of SandboxFusion's `/run_code`: requests, and parsing of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

Body = dict[str, Any]
"""A request's JSON."""

RUN_CODE = "/run_code"
RUN_BATCH = "/run_batch"
"""The path at which this project's own server takes many programs, with many inputs each."""

LEAVING = "x-sandbox-leaving"
"""Header with which this project's server marks a 503 during shutdown, when it ran nothing."""

PLACES = "x-sandbox-places"
"""Header in which this project's server says, with each ping, how many requests it runs at once."""

NO_TOOLCHAIN = "this server has no toolchain for"
"""Start of the message with which this project's server rejects a language."""

TOOLCHAIN_MISSING = 127
"""A shell's exit code for a command that is not installed."""

SANDBOX_ERROR = "SandboxError"
"""Status with which a server reports its own failure, with HTTP status 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The outcome of compiling or running."""

    status: str
    """Finished, TimeLimitExceeded or Error."""
    return_code: int | None
    """None after a time-out; negative for a signal."""
    stdout: str
    stderr: str
    wall_s: float

    @property
    def succeeded(self) -> bool:
        return self.status == "Finished" and self.return_code == 0

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Self:
        code = content["return_code"]
        return cls(
            status=str(content["status"]),
            return_code=None if code is None else int(code),
            stdout=content["stdout"] or "",
            stderr=content["stderr"] or "",
            wall_s=float(content["execution_time"] or 0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A server's answer."""

    status: str
    """Success, Failed, or SandboxError."""
    message: str
    compiled: Phase | None
    ran: Phase | None
    files: Mapping[str, str] = field(default_factory=dict)
    """Fetched files in base64."""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse an answer.

        Raises:
            ValueError: it is not SandboxFusion's; with a description of it.
        """
        try:
            content = json.loads(data)
            phases = [
                Phase.parse(content[key]) if content[key] else None
                for key in ("compile_result", "run_result")
            ]
            return cls(
                status=str(content["status"]),
                message=str(content["message"]),
                compiled=phases[0],
                ran=phases[1],
                files=dict(content.get("files") or {}),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(describe(data)) from error


def run_code(
    code: str,
    language: str,
    *,
    run_s: float,
    stdin: str | None = None,
    compile_s: float = 30.0,
    memory_mb: int | None = None,
    files: Mapping[str, str] | None = None,
    fetch_files: Sequence[str] = (),
) -> Body:
    """Return a request's JSON. Without `memory_mb` the server limits only time."""
    body: Body = {
        "code": code,
        "language": language,
        "stdin": stdin,
        "compile_timeout": compile_s,
        "run_timeout": run_s,
        "files": dict(files or {}),
        "fetch_files": list(fetch_files),
    }
    return body if memory_mb is None else {**body, "memory_limit_MB": memory_mb}


def describe(data: bytes) -> str:
    """Return a short description of something that came instead of an answer."""
    text = " ".join(data[:2000].decode("utf-8", "replace").split())
    if not text:
        return "an empty answer"
    kind = "an HTML page" if text[:200].lower().startswith(("<!doctype", "<html")) else "an answer"
    return f"{kind} that is not SandboxFusion's: {text[:80]!r}"
