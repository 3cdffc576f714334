"""When a busy HTTP server wants to be asked again."""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from datetime import UTC, datetime


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The Retry-After header's seconds, or seconds until its date; None without a sensible one."""
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
