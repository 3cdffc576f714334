"""Secrets in URLs, which no report, record, message or file name shows.

A password or token stands before the host (`https://user:password@host`, `https://token@host`), or in
the query (`?api_key=…`, `?X-Amz-Signature=…`). Requests use the URL itself; all else shows `redacted`.
The verifiers of exported tasks carry this module, so it imports `re` only for text with a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re

MASK = "***"

# One slash: a `Path` made of a URL drops the other. Bounded repetitions keep long texts linear.
_SCHEME = r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}:/{1,2}"
_USER_INFO = rf"({_SCHEME})(?!/)([^/?#\s]{{0,2000}})@(?!sha256:)"  # nor an image and its digest
_URL = rf"{_SCHEME}[^\s'\"<>]+"
_PARAMETER = (
    r"(?i)([?&;#][^?=&;#\s]{0,40}"
    r"(?:key|token(?!s)|secret|passw|pwd|signature|\bsig\b|credential|auth(?!or)|session)"
    r"[^?=&;#\s]{0,40}=)[^&;#\s'\"<>]+"
)


def redacted(value: Any) -> Any:
    """Return text with `***` for the secrets of all URLs in it; in containers, of all their text."""
    if isinstance(value, str):
        return _shown(value) if ":/" in value else value
    if isinstance(value, dict):
        return {redacted(key): redacted(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(redacted(one) for one in value)
    return value


def is_redacted(text: str) -> bool:
    """Return whether a URL in the text lacks its secrets."""
    import re

    return f"{MASK}@" in text or any(f"={MASK}" in url[0] for url in re.finditer(_URL, text))


def _shown(text: str) -> str:
    import re

    shown = re.sub(_USER_INFO, _user, text)
    return re.sub(_URL, lambda url: re.sub(_PARAMETER, rf"\1{MASK}", url[0]), shown)


def _user(match: re.Match[str]) -> str:
    """Return a URL's start with its user, but without a password or a token in the user's place."""
    user, colon, _ = match[2].partition(":")
    return f"{match[1]}{user}:{MASK}@" if colon else f"{match[1]}{MASK}@"
