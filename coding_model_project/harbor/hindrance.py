"""Signs in a verifier's output that it lacked a network, a tool or an interpreter.

A sign is a suspicion: the judged program may have printed it. `trial.Trials` gives a verdict only from
runs in which no such program took part.
"""

from __future__ import annotations

import re

_NETWORK = re.compile(
    r".*(?:could(?:n't| not) resolve|failed to resolve|failure (?:in name resolution|resolving)|"
    r"failed to lookup address|name or service not known|network is unreachable|EAI_AGAIN|"
    r"ENOTFOUND|dns error).*",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r".*(?:connection refused|could not connect|failed to connect|command not found|"
    r": not found$|bad interpreter|no module named|required file not found|exec format error|"
    r"^(?:/usr/bin/)?env: .*no such file).*",
    re.IGNORECASE | re.MULTILINE,
)
_CODES = {
    126: "its script or last command is not executable",
    127: "its last command does not exist",
}
"""Exit codes of a shell, by POSIX."""

_SHOWN_CHARS = 200


def of_network(output: str) -> str | None:
    """Return the first line that reports a name that was not resolved; None without one."""
    return _line(_NETWORK.search(output))


def hindrance(output: str, exit_code: int) -> str | None:
    """Return the sign that a verifier could not work; None without one."""
    return of_network(output) or _line(_MISSING.search(output)) or _CODES.get(exit_code)


def _line(found: re.Match[str] | None) -> str | None:
    return None if found is None else found[0].strip()[:_SHOWN_CHARS]
