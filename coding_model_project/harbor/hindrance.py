"""Signs that a verifier lacked a network, a tool, an interpreter or a server that the agent started.

A sign is a suspicion: the judged program may have printed it, or left servers running. `trial.Trials`
gives a verdict only from runs in which no such program took part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NETWORK = re.compile(
    r".*(?:could(?:n't| not) resolve|failed to resolve|failure (?:in name resolution|resolving)|"
    r"failed to lookup address|name or service not known|network is unreachable|\bEAI_AGAIN\b|"
    r"\bENOTFOUND\b|dns error).*",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r".*(?:connection refused|could not connect|failed to connect|command not found|"
    r": not found$|bad interpreter|required file not found|exec format error|"
    r"^\S*python\S*: no module named|^(?:/usr/bin/)?env: .*no such file).*",
    re.IGNORECASE | re.MULTILINE,
)
_CODES = {
    126: "its script or last command is not executable",
    127: "its last command does not exist",
}
"""Exit codes of a shell, by POSIX."""

_SHOWN_CHARS = 200
_MANY = 5


def of_network(output: str) -> str | None:
    """Return the first line that reports a name that was not resolved; None without one."""
    return _line(_NETWORK.search(output))


def hindrance(output: str, exit_code: int, ended: Sequence[int] = ()) -> str | None:
    """Return the sign that a verifier could not work; None without one.

    Args:
        ended: ports of servers that the agent left running, and that ended before the verifier started.
    """
    if ended and not of_network(output):
        named = ", ".join(map(str, ended[:_MANY])) + (", …" if len(ended) > _MANY else "")
        return f"it may need servers that ended with the agent, on port {named}"
    return of_network(output) or _line(_MISSING.search(output)) or _CODES.get(exit_code)


def _line(found: re.Match[str] | None) -> str | None:
    return None if found is None else found[0].strip()[:_SHOWN_CHARS]
