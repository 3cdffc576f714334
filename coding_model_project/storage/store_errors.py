"""One-line errors of object stores: the URL, what is wrong, and how to fix it.

Each protocol's library raises its own errors. This module recognizes botocore's by name, so it needs none
of these libraries.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from coding_model_project.errors import CodingModelError, ConfigError, DownloadError, StorageError
from coding_model_project.extras import how_to_install
from coding_model_project.http import reason

_EXPIRED = "the credentials have expired; renew them (AWS_SESSION_TOKEN, or `aws sso login`)"
_UNKNOWN = (
    "the store rejects these credentials; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_SESSION_TOKEN and AWS_ENDPOINT_URL"
)
_NO_CREDENTIALS = (
    "no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
)
_SKEWED = "the clock of this machine differs from the store's by more than 15 minutes; set it"
_REGION = "the bucket lies in another region; set AWS_DEFAULT_REGION to it"
_REFUSED = (
    "these credentials have no permission for it; allow s3:ListBucket, s3:GetObject, s3:PutObject and "
    "s3:DeleteObject there, or use other credentials"
)
_NO_BUCKET = "no such bucket; create it, or correct the URL"
_NO_OBJECT = "no such object or folder; correct the URL"

_CODES = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidAccessKeyId": _UNKNOWN,
    "InvalidToken": _UNKNOWN,
    "SignatureDoesNotMatch": _UNKNOWN,
    "RequestTimeTooSkewed": _SKEWED,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    "301": _REGION,
    "AccessDenied": _REFUSED,
    "AllAccessDisabled": _REFUSED,
    "403": _REFUSED,
    "400": _UNKNOWN,
    "NoSuchBucket": _NO_BUCKET,
    "NoSuchKey": _NO_OBJECT,
    "404": _NO_OBJECT,
}
"""S3's codes, https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html."""

_LIBRARIES = {"s3": ("s3fs", how_to_install("s3")), "gs": ("gcsfs", "pip install gcsfs")}
_PERMANENT = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError)


def missing_library(url: str, error: ImportError) -> ConfigError:
    """Return the error for a protocol whose library is not installed."""
    protocol = url.partition("://")[0]
    library, way = _LIBRARIES.get(protocol, ("", ""))
    if not library:
        return ConfigError(f"{url}: {error}")
    return ConfigError(f"{url}: {library}, which reads {protocol}://, is not installed; run: {way}")


def explained(error: Exception, url: str) -> CodingModelError:
    """Return the error to raise in place of a library's.

    The user can correct a `ConfigError`; a `DownloadError` comes from the network or the store.
    """
    if isinstance(error, CodingModelError):
        return error
    if _is_full(error):
        return StorageError(f"{url}: this machine's disk is full; make room, and start again")
    if isinstance(error, ImportError):
        return missing_library(url, error)
    if code := _code(error):
        if known := _CODES.get(code):
            return ConfigError(f"{url}: {known} ({code})")
        return DownloadError(f"{url}: the store answered {code}: {reason(error)}")
    names = _names(error)
    if {"NoCredentialsError", "PartialCredentialsError"} & names:
        return ConfigError(f"{url}: {_NO_CREDENTIALS}")
    if "ParamValidationError" in names:
        return ConfigError(f"{url}: not a valid address of an object; correct the URL")
    if _is_unreachable(error):
        endpoint = os.environ.get("AWS_ENDPOINT_URL") if url.startswith("s3://") else None
        where = f"the endpoint {endpoint}" if endpoint else "the store"
        check = " and AWS_ENDPOINT_URL" if url.startswith("s3://") else ""
        return DownloadError(
            f"{url}: {where} cannot be reached ({_short(error)}); check the network{check}"
        )
    if isinstance(error, FileNotFoundError):
        known = _NO_BUCKET if "bucket does not exist" in str(error) else _NO_OBJECT
        return ConfigError(f"{url}: {known}")
    if isinstance(error, PermissionError) and error.filename:  # of this machine's disk
        return ConfigError(f"{url}: {error.filename}: permission denied on this machine")
    if isinstance(error, PermissionError):
        expired = "expired" in str(error).lower()
        return ConfigError(f"{url}: {_EXPIRED if expired else _REFUSED}")
    kind = DownloadError if isinstance(error, OSError) else ConfigError
    return kind(f"{url}: cannot be used: {type(error).__name__} {reason(error)}")


@contextmanager
def explaining(url: str) -> Iterator[None]:
    """Turn any error of a store's library into the one that `explained` returns."""
    try:
        yield
    except CodingModelError:
        raise
    except Exception as error:  # each protocol's library has exceptions of its own
        raise explained(error, url) from error


def shortly_explained(error: Exception, url: str) -> str:
    """Return the reason for a failed operation, for a message that already names the URL."""
    if not (_code(error) or _is_unreachable(error)) and isinstance(error, OSError):
        return reason(error)
    return str(explained(error, url)).removeprefix(f"{url}: ")


def is_transport_fault(error: BaseException) -> bool:
    """Return whether a retry may succeed."""
    if code := _code(error):
        return code not in _CODES
    if _is_full(error):
        return False
    if _is_unreachable(error):
        return True
    return isinstance(error, OSError) and not isinstance(error, _PERMANENT)


def _is_unreachable(error: BaseException) -> bool:
    """Return whether the store gave no answer at all."""
    names = {name for one in _chain(error) for name in _names(one)}
    ours = {"EndpointConnectionError", "HTTPClientError", "ConnectionError", "TimeoutError"}
    return bool(ours & names) or "gaierror" in names


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _short(error: Exception) -> str:
    """Return the reason for a missing answer, without the request's long address."""
    text = reason(error)
    return "no connection" if text.startswith("Could not connect to the endpoint") else text


def has_no_words(error: Exception) -> bool:
    """Return whether the error answers a HEAD request, which has no body with details."""
    return _code(error) in ("400", "403")


def _code(error: BaseException) -> str:
    """Return S3's code of the answer that caused an error; empty if there was none."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _chain(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
