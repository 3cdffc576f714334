"""The gateway's routes. Every request gets a reply or an error in OpenAI's format."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from coding_model_project.harbor.gateway.requests import RequestError, read_ask, read_object
from coding_model_project.harbor.gateway.session import Answer, Session

MODEL = "policy"
"""The model's name. Requests for any other name get this model."""

_CLIENT_GONE = 499
_log = logging.getLogger(__name__)


class Sessions:
    """The open sessions by key. Only hashes of keys are stored and compared."""

    def __init__(self) -> None:
        self._by_hash: dict[bytes, Session] = {}

    def add(self, session: Session) -> None:
        """Accept requests with this session's key."""
        self._by_hash[_hash(session.key)] = session

    def remove(self, session: Session) -> None:
        """Reject requests with this session's key."""
        self._by_hash.pop(_hash(session.key), None)

    def of(self, request: Request) -> Session:
        """Return the session of a request's key.

        Raises:
            RequestError: no open session has this key.
        """
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        session = self._by_hash.get(_hash(key.strip())) if kind.lower() == "bearer" else None
        if session is None:
            raise RequestError(
                "no sample has this key: send Authorization: Bearer OPENAI_API_KEY",
                status=401,
                kind="authentication_error",
                code="invalid_api_key",
            )
        return session


def make_app(sessions: Sessions, *, max_bytes: int) -> Starlette:
    """Return the gateway as an ASGI application.

    Args:
        max_bytes: most bytes of a request's body.
    """

    async def chat(request: Request) -> Response:
        session = sessions.of(request)
        session.admit()
        ask = read_ask(await _body(request, max_bytes))
        answer = await session.reply(ask, request.is_disconnected)
        if not ask.stream:
            return JSONResponse(_completion(answer))
        chunks = _chunks(answer, usage=ask.include_usage)
        return StreamingResponse(_events(chunks), media_type="text/event-stream")

    async def models(request: Request) -> Response:
        sessions.of(request)
        return JSONResponse({"object": "list", "data": [_model()]})

    async def model(request: Request) -> Response:
        sessions.of(request)
        return JSONResponse(_model())

    async def shell(request: Request) -> Response:
        session = sessions.of(request)
        session.admit()
        given = read_object(await _body(request, max_bytes))
        command, timeout_s = given.get("command"), given.get("timeout_s")
        if not isinstance(command, str) or not _is_time(timeout_s):
            raise RequestError('send {"command": TEXT, "timeout_s": SECONDS or null}')
        ended = await session.run_command(command, timeout_s)
        return JSONResponse(
            {
                "stdout": ended.stdout,
                "stderr": ended.stderr,
                "exit_code": ended.exit_code,
                "killed": ended.killed and str(ended.killed),
            }
        )

    async def unknown(request: Request) -> Response:
        raise RequestError(f"{request.method} {request.url.path:.200} is not served", status=404)

    routes = [
        Route("/v1/chat/completions", _guarded(chat), methods=["POST"]),
        Route("/v1/models", _guarded(models), methods=["GET"]),
        Route("/v1/models/{name:path}", _guarded(model), methods=["GET"]),
        Route("/v1/shell", _guarded(shell), methods=["POST"]),
        Route("/{path:path}", _guarded(unknown), methods=["GET", "POST", "PUT", "DELETE"]),
    ]
    return Starlette(routes=routes)


Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RequestError as error:
            return JSONResponse(error.body(), error.status)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except Exception as error:  # noqa: BLE001 - clients never get a traceback
            _log.exception("a request to the gateway failed")
            failure = RequestError(type(error).__name__, status=500, kind="server_error")
            return JSONResponse(failure.body(), failure.status)

    return answered


async def _body(request: Request, max_bytes: int) -> bytes:
    """Read a request's body, up to `max_bytes`.

    Raises:
        RequestError: it is too large.
    """
    too_large = RequestError(f"a request may have at most {max_bytes} bytes", status=413)
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > max_bytes:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise too_large
    return bytes(body)


def _is_time(given: Any) -> bool:
    if given is None:
        return True
    return isinstance(given, int | float) and not isinstance(given, bool) and given > 0


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": 0, "owned_by": "coding_model_project"}


def _completion(answer: Answer) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": answer.message,
        "finish_reason": answer.finish_reason,
        "logprobs": None,
    }
    return {**_head("chat.completion"), "choices": [choice], "usage": _usage(answer)}


def _chunks(answer: Answer, *, usage: bool) -> Iterator[Mapping[str, Any]]:
    """Yield a reply as chunks. Its text is one chunk, because the policy replies in one piece."""
    head = _head("chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return {**head, "choices": [choice]}

    yield chunk({"role": "assistant", "content": answer.message["content"] or ""})
    for index, call in enumerate(answer.message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, answer.finish_reason)
    if usage:
        yield {**head, "choices": [], "usage": _usage(answer)}


async def _events(chunks: Iterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def _head(kind: str) -> dict[str, Any]:
    made = f"chatcmpl-{uuid4().hex}"
    return {"id": made, "object": kind, "created": int(time.time()), "model": MODEL}


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
