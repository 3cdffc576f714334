"""Announcements of retries: one line when a service goes down, one when it is back; and secrets.

stamina schedules the retries; this module prints them. Wrap stamina's loop in `announced`, and call
`Service.worked` after each answer.
"""

from __future__ import annotations

import email.utils
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime

from stamina.instrumentation import (
    RetryDetails,
    RetryHook,
    get_on_retry_hooks,
    set_on_retry_hooks,
)

from coding_model_project.errors import ConfigError
from coding_model_project.redaction import redacted

_LONG_S = 10.0
"""Seconds after which an outage is always announced."""
_QUIET_S = 30.0
"""Seconds after an announcement without announcements of shorter outages; doubles each time, since a
server that limits its rate fails briefly again and again."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Service:
    """A service whose outages are each announced once.

    Args:
        kind: the service's name in messages, e.g. "server".
        url: its address.
        say: the function that prints a line; by default to standard error.
    """

    def __init__(self, kind: str, url: str, say: Callable[[str], None] = _to_stderr) -> None:
        self._url = redacted(url)
        self._name = f"the {kind} {self._url}"
        self._say = say
        self._down_since: float | None = None
        self._announced = False
        self._quiet_until, self._quiet_s = 0.0, _QUIET_S

    def failed(self, error: BaseException, plan: str) -> None:
        """Record a request without an answer, and announce the first one of an outage.

        Args:
            plan: the time of the next attempt and the end of the retries, for the message.
        """
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
        if self._announced or (now < self._quiet_until and now - self._down_since < _LONG_S):
            return
        self._announced = True
        why = reason(error).removeprefix(f"{self._url}: ")
        self._say(f"{self._name} does not answer ({why}); {plan}")

    def note(self, what: str) -> None:
        """Print a line about the service, e.g. that it is new."""
        self._say(f"{self._name} {what}")

    def worked(self) -> None:
        """Record an answer, and announce the first one after an announced outage."""
        if self._down_since is None:
            return
        now = time.monotonic()
        if self._announced:
            self._say(f"{self._name} is back after {now - self._down_since:.0f} s")
            self._quiet_until = now + self._quiet_s
            self._quiet_s *= 2
        self._down_since, self._announced = None, False


@dataclass(frozen=True, slots=True)
class _Bound:
    """The service that a task calls, and the limit of its retries as text."""

    service: Service | None
    end: str


_bound: ContextVar[_Bound | None] = ContextVar("coding_model_project.http", default=None)


@contextmanager
def announced(
    service: Service | None, *, retry_s: float | None = None, attempts: int | None = None
) -> Iterator[None]:
    """Announce the retries that stamina schedules inside the block, in place of its own log lines.

    Args:
        service: the called service; an exception with an attribute `service` overrides it.
        retry_s: seconds from now after which retries stop.
        attempts: the maximum number of attempts, if `retry_s` is None.
    """
    _install()
    if retry_s is not None:
        until = datetime.fromtimestamp(time.time() + retry_s)
        end = f"retrying until {until:%H:%M:%S}"
    else:
        end = f"{attempts} attempts at most"
    token = _bound.set(_Bound(service, end))
    try:
        yield
    finally:
        _bound.reset(token)


def reason(error: BaseException) -> str:
    """Return a short reason for a failed request, from the operating system if it gives one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno).lower()  # asyncio's own text names the address only
        if isinstance(cause, socket.gaierror) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    text = redacted(" ".join(str(error).split()))
    return text if text else type(error).__name__


def _install() -> None:
    """Install our hook, and let existing hooks see only the retries outside `announced`."""
    hooks = get_on_retry_hooks()
    if _announce not in hooks:
        set_on_retry_hooks((_announce, *map(_for_others, hooks)))


def _announce(details: RetryDetails) -> None:
    bound = _bound.get()
    if bound is None:
        return
    service: Service | None = getattr(details.caused_by, "service", None) or bound.service
    if service is not None:
        plan = f"next attempt in {details.wait_for:.1f} s, {bound.end}"
        service.failed(details.caused_by, plan)


def _for_others(hook: RetryHook) -> RetryHook:
    return lambda details: hook(details) if _bound.get() is None else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Parse `Retry-After` into seconds from now; return None if it is missing or malformed."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
        return max(0.0, (when - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a time zone
        return None


def secret_of(variable: str, given: str | None = None) -> str | None:
    """Return a token or key for a header, without blanks around it, which files of secrets often have.

    Args:
        variable: the environment variable that holds it, also named in the error.
        given: its text, if it has been read.

    Raises:
        ConfigError: no header can carry it. The message does not show it.
    """
    text = (os.environ.get(variable, "") if given is None else given).strip()
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise ConfigError(f"{variable}: has a blank, a line break or a character that is not ASCII")
    return text or None


def bearer(secret: str | None) -> dict[str, str]:
    """Return the header that carries a secret; none without one."""
    return {"authorization": f"Bearer {secret}"} if secret else {}


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
