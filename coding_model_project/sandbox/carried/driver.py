"""The driver, which runs the programs of a request, as root or not, one after another.

    D, this process: reads the request, holds its secret, keeps the clock, leaves the signed answer
      └ the embedded sandbox's zygote, forked before D knows anything
          └ a process per program ── a confined process per input

Nothing else confines programs there, so the driver does, at the tier in its arguments. A program has
access to neither D's memory, nor its descriptors, nor later inputs. D only passes frames on: the host
makes and interprets them (`messages`), so requests spend no time on that.

A request starts a new Python and pays for all imports. So the modules that travel import neither
dataclasses nor pathlib nor socket, which take longer than a test.
"""

from __future__ import annotations

import _sitebuiltins
import _socket
import builtins
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from coding_model_project.isolation import linux, seccomp
from coding_model_project.sandbox.embedded import frames

ANSWER_FILE = "coding_model_project.answer"
"""File in which the answer is left, to be fetched."""

_START_S = 20.0
_COMPILE_S = 60.0
_MARGIN_S = 15.0
"""The same as in `slot`."""

_MOST_BYTES = 8 << 20

_WORTH_COMPRESSING = 32 << 10
_NOBODY = 65534
_EXECUTE_BY_OTHERS = 0o001

Frame = tuple[bytes, bytes]


def main(library: str) -> NoReturn:
    """Answer the request on standard input, with each program confined at the tier in the arguments.

    Args:
        library: name of the compiled loop in the working directory; empty for none.
    """
    tier = sys.argv[1]
    channel, _ = start_zygote(tier, library and os.path.abspath(library), finder=sys.meta_path[0])
    with open(0, "rb", buffering=0) as file:
        request = json.loads(file.readall())
    answer = Driver(channel, request, tier).answer()
    with open(ANSWER_FILE, "wb") as file:
        file.write(answer)
    os._exit(0)  # the zygote ends with its channel


def start_zygote(
    tier: str, library: str = "", finder: object = None, *, silent: bool = True
) -> tuple[Any, int]:
    """Fork a zygote; return the channel to it, and its id. Call this before reading anything secret.

    Args:
        library: path of the compiled loop; empty for none.
        finder: the importer of this package, which programs shall not have.
        silent: whether nothing is written to standard error; else it is why a program's process failed.
    """
    ours, theirs = _socket.socketpair()
    host = os.getpid()
    if (pid := os.fork()) == 0:
        ours.close()
        _become_zygote(host, theirs, tier, library, finder, range(3 if silent else 2))
    theirs.close()
    linux.hide_memory()
    return ours, pid


def _become_zygote(
    host: int, channel: Any, tier: str, library: str, finder: object, closed: Iterable[int]
) -> NoReturn:
    """Become a zygote after the modules to import first are known; some streams lead nowhere."""
    try:
        linux.end_with(host)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in closed:
            os.dup2(nothing, standard)
        channel = _socket.socket(fileno=linux.lowest(channel.detach()))
        from coding_model_project.sandbox.embedded import zygote

        sys.meta_path[:] = [one for one in sys.meta_path if one is not finder]
        for name in ("exit", "quit"):  # which `site` makes elsewhere
            setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
        if tier == "rlimit":
            zygote.prepare = _strengthened(zygote.prepare, host)
        head, _ = frames.receive(channel)  # pyrefly: ignore[bad-argument-type]
        zygote.serve(channel, tier, head["preload"], library)  # pyrefly: ignore[bad-argument-type]
    except BaseException as error:  # noqa: BLE001 - no exception may return into D's frames
        if not isinstance(error, EOFError):
            frames.send(channel, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(1)


def _strengthened(plain: Any, host: int) -> Any:
    """Return a function that prepares tier rlimit, the last resort, which closes no files to readers.

    Programs are isolated from the driver and from each other all the same. They have no capabilities, and
    cannot make or remove files, or signal, trace or start processes. If the server runs as root, they
    become nobody, unless only root may read this Python.
    """
    linux.hide_memory()

    def prepare(tier: Any, granted: None = None) -> Any:
        confinement = plain(tier)._replace(filter=linux.Filter(seccomp.NO_NEW_FILES))
        if can_be_nobody():
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            linux.end_with(host)  # the kernel forgot that with the user
        return confinement

    return prepare


def can_be_nobody() -> bool:
    """Return whether programs may run as nobody: this is root, and everybody may use its Python."""
    return os.getuid() == 0 and all(map(_is_open_to_others, sys.path))


def _is_open_to_others(path: str) -> bool:
    """Return whether every user may import from a folder, or it does not exist."""
    if not os.path.exists(path):
        return True
    while os.stat(path).st_mode & _EXECUTE_BY_OTHERS or not os.path.isdir(path):
        if path == os.path.dirname(path):
            return True
        path = os.path.dirname(path)
    return False


class Lost(Exception):
    """The zygote, or the process of a program, ended or hung."""


class Driver:
    """The exchange of a request's frames with the zygote.

    Args:
        most_bytes: size of an answer after which no further input is started.
    """

    def __init__(
        self, channel: Any, request: dict[str, Any], tier: str, most_bytes: float = _MOST_BYTES
    ) -> None:
        self._channel, self._request, self._tier = channel, request, tier
        self._most_bytes = most_bytes
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
            self.start()
            for program in self._request["programs"]:
                if reports and self._is_over():
                    break
                alone = program["alone"] and self._serves_alone
                reports.append({"frames": [], "alone": alone})
                for frame in self.frames(program):
                    reports[-1]["frames"].append(frame)
        except (Lost, OSError, EOFError) as lost:
            error = f"{type(lost).__name__} {lost}"
        for one in reports:
            bodies += [part for frame in one["frames"] for part in frame]
            one["frames"] = [[len(head), len(body)] for head, body in one["frames"]]
        if error and reports:
            reports[-1]["lost"] = error
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        head = {"identity": f"{self._tier}/cpython-{version}", "programs": reports, "error": error}
        return _signed(json.dumps(head).encode(), bodies, bytes.fromhex(self._request["secret"]))

    def start(self) -> None:
        """Wait until the zygote is ready.

        Raises:
            Lost, OSError, EOFError: it is not. So does `frames`.
        """
        self._channel.settimeout(_START_S)
        frames.send(self._channel, {"preload": self._request["preload"]})
        head, _ = frames.receive(self._channel)
        if "ready" not in head:
            raise Lost(f"tier {self._tier} does not work here ({head.get('failed')})")
        self._serves_alone = head["serves_alone"]

    def _is_over(self) -> bool:
        return time.monotonic() > self._until or self._bytes > self._most_bytes

    def frames(self, program: dict[str, Any]) -> Iterator[Frame]:
        """Yield the frame of each started input, or one frame if the program does not compile."""
        limits, wall_s = program["limits"], program["limits"]["wall_s"]
        source = program["source"].encode()
        inputs = [(head, text.encode("utf-8", "surrogatepass")) for head, text in program["inputs"]]
        files = {name: _decoded(data) for name, data in program["files"].items()}
        if self._ending:
            self._receive(_MARGIN_S)  # the last program's process has ended
            self._ending = False
        if program["alone"] and self._serves_alone:
            if limits != self._limits:
                self._send({"limits": limits})
                self._limits = limits
            head, data = inputs[0]
            self._send({"single": len(source), **head}, source + data)
            yield self._receive(_COMPILE_S + wall_s + _MARGIN_S)
            return
        sizes = [len(source), *map(len, files.values())]
        self._send(
            {"limits": limits, "sizes": sizes, "files": list(files)},
            b"".join([source, *files.values()]),
        )
        begun = self._receive(_COMPILE_S)
        self._ending = not begun[0].startswith(b'{"done"')
        if not begun[0].startswith(b'{"compiled"'):
            yield begun
            return
        for number, (head, data) in enumerate(inputs):
            if number and self._is_over() and not head.get("continues"):
                break
            self._send(head, data)
            ended = self._receive(wall_s + _MARGIN_S)
            if ended[0].startswith(b'{"done"'):
                raise Lost(f"the process of the program ended: {ended[0].decode()}")
            yield ended
        self._send({"end": True})

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


def _decoded(data: str) -> bytes:
    import binascii  # here, so that the zygote has no copy of its mappings

    return binascii.a2b_base64(data)


def _signed(head: bytes, bodies: list[bytes], secret: bytes) -> bytes:
    """Return a signed answer, as `messages.decode_answer` reads it."""
    import _blake2

    content = b"".join([len(head).to_bytes(4, "little"), head, *bodies])
    if len(content) > _WORTH_COMPRESSING:
        import zlib

        content = b"z" + zlib.compress(content, 1)
    else:
        content = b"-" + content
    return _blake2.blake2b(content, key=secret).digest() + content
