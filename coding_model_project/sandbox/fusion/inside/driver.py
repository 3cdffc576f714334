"""The driver, which runs programs inside a SandboxFusion server, as root or not, one after another.

    D, this process: reads the request, holds its secret, keeps the clock, leaves the signed answer
      └ the embedded sandbox's zygote, forked before D knows anything
          └ a process per program ── a confined process per input

A server confines nothing, so the driver does, at the tier in its arguments. A program has access to
neither D's memory, nor its descriptors, nor later inputs. D only passes frames on: the host interprets
them (`driver_messages`), so requests spend no time on that.
"""

from __future__ import annotations

import builtins
import json
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

from lean import load  # loads modules of this package

from coding_model_project.isolation import linux
from coding_model_project.sandbox.embedded import frames, zygote
from coding_model_project.sandbox.fusion.inside import tier_rlimit

ANSWER_FILE = "coding_model_project.answer"
"""File in which the answer is left, to be fetched."""

_START_S = 20.0
_COMPILE_S = 60.0
_MARGIN_S = 15.0
"""The same as in `slot`."""

_LONGEST_ALONE = 1 << 16
_LONGEST_HEAD = 450
"""The same as in `slot`: limits of a program that comes with its only input in one frame."""

_MOST_BYTES = 8 << 20
"""Size of an answer after which no further input is started."""

_WORTH_COMPRESSING = 32 << 10

_OURS = (
    ("sandbox.embedded.run_program", None),
    ("codec", "call"),
    ("sandbox.embedded.callee", "call"),
    ("sandbox.embedded.callee", "asserts"),
    ("sandbox.embedded.asserts", "asserts"),
    ("sandbox.embedded.argument_files", "files"),
)
"""Modules that processes of tests use, and the kind of input that needs them."""

Frame = tuple[bytes, bytes]


def main(library: str) -> NoReturn:
    """Answer the request on standard input, with each program confined at the tier in the arguments.

    Args:
        library: path of the compiled loop; empty for none.
    """
    tier = sys.argv[1]
    load("coding_model_project.isolation.linux")  # once for both processes
    load("coding_model_project.sandbox.embedded.frames")
    ours, theirs = socket.socketpair()
    host = os.getpid()
    if os.fork() == 0:
        ours.close()
        _become_zygote(host, theirs, tier, library)
    theirs.close()
    linux.hide_memory()
    with open(0, "rb", buffering=0) as file:
        request = json.loads(file.readall())
    answer = _Driver(ours, request, tier).answer()
    with open(ANSWER_FILE, "wb", buffering=0) as file:
        left = memoryview(answer)
        while left:
            left = left[file.write(left) :]
    os._exit(0)  # the zygote ends with its channel


def _become_zygote(host: int, channel: Any, tier: str, library: str) -> NoReturn:
    """Become a zygote after the modules to import first are known."""
    try:
        linux.end_with(host)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        channel = socket.socket(fileno=linux.lowest(channel.detach()))
        for name in ("exit", "quit"):
            setattr(builtins, name, _Quitter(name))
        if hasattr(sys, "set_int_max_str_digits"):
            sys.set_int_max_str_digits(0)
        if tier == "rlimit":
            tier_rlimit.strengthen()
        head, _ = frames.receive(channel)
        for name in head["ours"]:  # once here, instead of in every test's process
            load(f"coding_model_project.{name}")
        zygote.serve(channel, tier, head["preload"], library)
    except BaseException as error:  # noqa: BLE001 - no exception may return into D's frames
        if not isinstance(error, EOFError):
            frames.send(channel, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(1)


class _Quitter:
    """`exit` and `quit`, which programs expect; `site`, which makes them, takes 5 ms to import."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Use {self.name}() or Ctrl-D (i.e. EOF) to exit"

    def __call__(self, code: object = None) -> NoReturn:
        with suppress(BaseException):
            sys.stdin.close()
        raise SystemExit(code)


class _Lost(Exception):
    """The zygote, or the process of a program, ended or hung."""


class _Driver:
    """The exchange of a request's frames with the zygote."""

    def __init__(self, channel: Any, request: dict[str, Any], tier: str) -> None:
        self._channel, self._request, self._tier = channel, request, tier
        self._until = time.monotonic() + request["budget_s"]
        self._limits: dict[str, Any] | None = None
        self._serves_alone = self._ending = False
        self._bytes = 0

    def answer(self) -> bytes:
        """Return the signed outcomes of the first programs."""
        reports: list[dict[str, Any]] = []
        bodies: list[bytes] = []
        error = None
        try:
            self._start()
            for program in self._request["programs"]:
                if reports and self._is_over():
                    break
                reports.append({"frames": [], "alone": False})
                self._run(program, reports[-1])
        except (_Lost, OSError, EOFError) as lost:
            error = f"{type(lost).__name__} {lost}"
        for one in reports:
            bodies += [part for frame in one["frames"] for part in frame]
            one["frames"] = [[len(head), len(body)] for head, body in one["frames"]]
        if error and reports:
            reports[-1]["lost"] = error
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        head = {"identity": f"{self._tier}/cpython-{version}", "programs": reports, "error": error}
        return _signed(json.dumps(head).encode(), bodies, bytes.fromhex(self._request["secret"]))

    def _start(self) -> None:
        self._channel.settimeout(_START_S)
        kinds = {given[0] for one in self._request["programs"] for given in one["inputs"]}
        ours = [name for name, kind in _OURS if kind is None or kind in kinds]
        frames.send(self._channel, {"preload": self._request["preload"], "ours": ours})
        head, _ = frames.receive(self._channel)
        if "ready" not in head:
            raise _Lost(f"tier {self._tier} does not work here ({head.get('failed')})")
        self._serves_alone = head["serves_alone"]

    def _is_over(self) -> bool:
        return time.monotonic() > self._until or self._bytes > _MOST_BYTES

    def _run(self, program: dict[str, Any], report: dict[str, Any]) -> None:
        """Append the frame of each started input, or one frame if the program does not compile."""
        got: list[Frame] = report["frames"]
        limits, wall_s = program["limits"], program["limits"]["wall_s"]
        inputs, source = program["inputs"], program["source"].encode()
        files = {name: _decoded(data) for name, data in program["files"].items()}
        if self._ending:
            self._receive(_MARGIN_S)  # the last program's process has ended
            self._ending = False
        if len(inputs) == 1 and not files and self._comes_alone(inputs[0], source):
            if limits != self._limits:
                self._send({"limits": limits})
                self._limits = limits
            head, data = _frame_of(inputs[0], limits)
            report["alone"] = True
            self._send({"single": len(source), **head}, source + data)
            got.append(self._receive(_COMPILE_S + wall_s + _MARGIN_S))
            return
        sizes = [len(source), *map(len, files.values())]
        self._send(
            {"limits": limits, "sizes": sizes, "files": list(files)},
            b"".join([source, *files.values()]),
        )
        begun = self._receive(_COMPILE_S)
        self._ending = not begun[0].startswith(b'{"done"')
        if not begun[0].startswith(b'{"compiled"'):
            got.append(begun)
            return
        for number, given in enumerate(inputs):
            if number and self._is_over() and not _continues(given):
                break
            keep = _continues(*inputs[number + 1 : number + 2])
            self._send(*_frame_of(given, limits, keep=keep))
            ended = self._receive(wall_s + _MARGIN_S)
            if ended[0].startswith(b'{"done"'):
                raise _Lost(f"the process of the program ended: {ended[0].decode()}")
            got.append(ended)
        self._send({"end": True})

    def _comes_alone(self, given: list[Any], source: bytes) -> bool:
        kind, *rest = given
        return (
            self._serves_alone
            and len(source) <= _LONGEST_ALONE
            and (
                kind == "stdin"
                or (kind == "call" and len(json.dumps(rest[0])) <= _LONGEST_HEAD - 40)
            )
        )

    def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        self._channel.settimeout(_MARGIN_S)
        frames.send(self._channel, head, body)

    def _receive(self, timeout_s: float) -> Frame:
        self._channel.settimeout(timeout_s)
        lengths = frames.receive_body(self._channel, 8)
        n_head, n_body = (int.from_bytes(lengths[at : at + 4], "little") for at in (0, 4))
        frame = (
            frames.receive_body(self._channel, n_head),
            frames.receive_body(self._channel, n_body),
        )
        self._bytes += n_head + n_body
        return frame


def _continues(*following: list[Any]) -> bool:
    """Return whether the following input, if any, needs the state that the one before it left."""
    return any(given[0] == "asserts" and given[3] for given in following)


def _frame_of(
    given: list[Any], limits: dict[str, Any], *, keep: bool = False
) -> tuple[dict[str, Any], bytes]:
    """Return the frame of one input, as `outcomes.request` does."""
    match given:
        case ["stdin", text]:
            return {}, text.encode("utf-8", "surrogatepass")
        case ["call", function, arguments]:
            return {"function": function}, arguments.encode()
        case ["asserts", source, entry_point, continues]:
            head = {
                "entry_point": entry_point,
                "within": [limits["cpu_s"], limits["wall_s"]],
                "continues": continues,
                "keep": keep,
            }
            return head, source.encode()
        case ["files", contents]:
            texts = [text.encode("utf-8", "surrogatepass") for text in contents.values()]
            head = {"arguments": list(contents), "sizes": [len(text) for text in texts]}
            return head, b"".join(texts)
    raise ValueError("an unknown input")


def _decoded(data: str) -> bytes:
    import binascii

    return binascii.a2b_base64(data)


def _signed(head: bytes, bodies: list[bytes], secret: bytes) -> bytes:
    """Return a signed answer, in the format of `driver_messages.encode_answer`."""
    import _blake2

    content = b"".join([len(head).to_bytes(4, "little"), head, *bodies])
    if len(content) > _WORTH_COMPRESSING:
        import zlib

        content = b"z" + zlib.compress(content, 1)
    else:
        content = b"-" + content
    return _blake2.blake2b(content, key=secret).digest() + content
