"""An OpenAI-compatible server over real sockets: answers from a function, or fails as it is told."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from coding_model_project.episodes.tool_calls import parse

Answer = Callable[[str, int], str]
"""Prompt and seed to a completion."""


@dataclass
class Thinking:
    """A model that reasons, behind a server with a reasoning parser."""

    reason: Answer = lambda prompt, seed: f"Let me think about {prompt}"
    field: str = "reasoning_content"
    """The message's field; `reasoning` in newer servers."""
    counts: bool = True
    """`usage` tells the tokens of the reasoning."""
    heeds: bool = True
    """`enable_thinking=false` turns it off."""
    budget: int | None = None
    """Tokens after which an answer is cut off, if fewer than requested."""


@dataclass
class CompletionServer:
    """A completion server's behaviour and requests. Each request first uses up one of `faults`.

    Its API is only below /v1.
    """

    answer: Answer
    faults: list[str | dict[str, Any]] = field(default_factory=list)
    """Faults: 429, 500, 400, full, cut, half or hang, or a response: {status, body}."""
    delay_s: float = 0.0
    key: str | None = None
    """The API key that requests need; None needs no key."""
    refuses: dict[str, object] = field(default_factory=dict)
    """Bodies of HTTP 400 for requests with certain fields, by the field's name."""
    lists: bool = True
    """True to list `names` at /models."""
    names: tuple[str, ...] = ("toy",)
    page: bool | str = False
    """True to serve a web page outside the API, and a text to serve it as an error with HTTP 200, as LM
    Studio does, instead of HTTP 404."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    thinking: Thinking | None = None
    """Reasoning before the answer, if any."""
    calls: bool = False
    """True to parse tool calls from replies to requests that have tools."""
    reads: tuple[str, ...] = ()
    """Sampling options of which it refuses impossible values, as vLLM does."""


@contextmanager
def serving(server: CompletionServer, port: int = 0) -> Iterator[CompletionServer]:
    """Meanwhile it listens at `server.url`, whose port is chosen by the system if 0."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self._may_enter():
                if server.lists:
                    self._send(200, {"data": [{"id": name} for name in server.names]})
                else:
                    self._send(404, {"detail": "Not Found"})

        def _may_enter(self) -> bool:
            if not self.path.startswith("/v1/"):
                if isinstance(server.page, str):
                    self._send(200, {"error": server.page})
                elif server.page:
                    self._send(200, "<!doctype html>", {"content-type": "text/html"})
                else:
                    self._send(404, {"detail": "Not Found"})
                return False
            if server.key and self.headers["authorization"] != f"Bearer {server.key}":
                self._send(401, {"error": {"message": "Incorrect API key provided"}})
                return False
            return True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self._may_enter():
                return
            server.asked.append(body)
            if wrong := [name for name in server.reads if _impossible(name, body.get(name))]:
                message = f"{wrong[0]} is out of range, got {body[wrong[0]]}."
                self._send(400, {"error": {"message": message, "param": wrong[0]}})
                return
            if refused := [name for name in body if name in server.refuses]:
                self._send(400, server.refuses[refused[0]])
                return
            if body["model"] != "toy":
                error = {"message": f"The model `{body['model']}` does not exist.", "code": 404}
                self._send(404, {"error": error})
                return
            time.sleep(server.delay_s)
            match server.faults.pop(0) if server.faults else None:
                case "429":
                    self._send(429, {"error": "busy"}, {"retry-after": "0.1"})
                case "500" | "400" as status:
                    self._send(int(status), {"error": "no"})
                case dict() as said:  # a status and a body, as some server sends them
                    self._send(said["status"], said["body"])
                case "full":
                    self._send(400, {"error": "This model's maximum context length is 8 tokens."})
                case "cut":  # a body that is shorter than was said
                    self.send_response(200)
                    self.send_header("content-length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"choices": [{"mess')
                    self.close_connection = True
                case "half":  # a whole body, of an answer that was not
                    self._send(200, {"choices": [{"message": {"content": "x"}}]})
                case "error" | "abort" | "content_filter" as why:
                    choice = {"message": {"content": "x"}, "finish_reason": why}
                    self._send(200, {"choices": [choice], "usage": {"completion_tokens": 1}})
                case "filtered":
                    self._send(400, {"error": {"message": "no", "code": "content_filter"}})
                case "hang":
                    time.sleep(2.0)
                    self.close_connection = True
                case _:
                    self._send(200, self._completion(body))

        def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
            text = server.answer(body["messages"][-1]["content"], body.get("seed", 0))
            if server.thinking is not None:
                return _thought(server.thinking, body, text)
            message: dict[str, Any] = {"role": "assistant", "content": text or None}
            if server.calls and body.get("tools"):
                parsed = parse(text)
                calls = [call.openai(f"c{n}") for n, call in enumerate(parsed.calls)]
                message |= {"content": parsed.content, "tool_calls": calls or None}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            asked = sum(len(message["content"].split()) for message in body["messages"])
            usage = {"prompt_tokens": asked, "completion_tokens": len(text.split())}
            return {"choices": [choice], "usage": usage}

        def _send(self, status: int, content: object, headers: dict[str, str] | None = None):
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed."""

    with Quiet(("127.0.0.1", port), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}/v1"
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:  # after the socket's end the thread would run in circles
            listening.shutdown()


def _impossible(name: str, value: Any) -> bool:
    """Return whether a server that reads the option refuses the value."""
    match name:
        case "top_k":
            return value is not None and value < -1
        case "min_p":
            return value is not None and not 0 <= value <= 1
        case "chat_template_kwargs":
            return value is not None and not isinstance(value, dict)
        case "stop":
            return value is not None and not isinstance(value, list | str)
        case _:
            return value is not None and not -2 <= value <= 2


def _thought(model: Thinking, body: dict[str, Any], text: str) -> dict[str, Any]:
    """The answer of a model that reasons, its tokens being words."""
    off = model.heeds and body.get("chat_template_kwargs", {}).get("enable_thinking") is False
    prompt, seed = body["messages"][-1]["content"], body.get("seed", 0)
    thought = [] if off else model.reason(prompt, seed).split(" ")
    most = min(body["max_tokens"], model.budget or body["max_tokens"])
    words = text.split(" ")
    cut = len(thought) + len(words) > most
    thought, words = thought[:most], words[: max(0, most - len(thought))]
    message = {"role": "assistant", "content": " ".join(words) or None}
    message[model.field] = " ".join(thought) or None
    usage: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": len(thought) + len(words)}
    if model.counts:
        usage["completion_tokens_details"] = {"reasoning_tokens": len(thought)}
    choice = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}
    return {"choices": [choice], "usage": usage}
