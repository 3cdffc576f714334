"""The process from which all sandboxed programs are forked; it runs only trusted code itself.

    zygote (preloaded, single-threaded)
      └ P, one per program: compiles the source and detects syntax errors, never runs it
          ├ T, one per input: confined, then runs the program
          └ A, one per input of asserts: the trusted tests, confined too, calling into T (`inputs`)

With a C compiler, `fork_server` forks T instead of Python code, and a program with a single input needs
no P: it goes with its input to a T that is the zygote's own child, compiles it, and is then confined. T
and A may answer several asserts (`inputs.Kept`).

The zygote never holds a source, or programs could find other programs' sources in memory: only P receives
it. No expected output comes here at all.

`slot` starts it as `-m …zygote HOST_PID FD TIER PRELOADED,MODULES COMPILED_LOOP`.
"""

from __future__ import annotations

import _socket
import _thread
import contextlib
import gc
import importlib
import mmap
import os
import resource
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from coding_model_project.isolation import linux, seccomp
from coding_model_project.isolation.confine import (
    Confinement,
    Limits,
    Room,
    Tier,
    empty_scratch,
    prepare,
)
from coding_model_project.sandbox.embedded import fork_server, frames, inputs, run_program
from coding_model_project.sandbox.embedded.fork_server import (
    ASTRAY,
    CALL,
    SCRIPT,
    SOURCE_FD,
    UNHANDLED,
    ForkServer,
    Plan,
)
from coding_model_project.sandbox.embedded.forked import Compiled, Ready, ready
from coding_model_project.sandbox.embedded.inputs import Kept

if TYPE_CHECKING:
    import socket

PRELOAD = """
abc ast bisect collections.abc contextlib copy encodings.ascii encodings.latin_1 encodings.utf_8 enum
functools heapq io itertools json math numbers operator random re string struct textwrap threading time
typing
"""
"""The modules that programs import most: an import here saves its time in every test."""

ON_DEMAND = """
array base64 calendar cmath csv dataclasses datetime decimal encodings.idna fractions hashlib pprint
queue statistics unicodedata
"""
"""Modules that P imports, once for all tests, for a program that names them. Each shared library that
they load would cost the tests of all programs 9 us, since a fork copies its five mappings."""

_REHEARSALS = 20 if sys.version_info >= (3, 11) else 2
"""Runs of the rehearsal: more than the interpreter needs to specialise code, eight from 3.11 on."""


def main() -> None:
    host, descriptor, tier, preload, library = sys.argv[1:]
    channel: Any = _socket.socket(fileno=linux.lowest(int(descriptor)))
    linux.end_with(int(host))
    serve(channel, tier, [*PRELOAD.split(), *filter(None, preload.split(","))], library)


def serve(channel: socket.socket, tier: str, preload: Sequence[str], library: str) -> None:
    """Fork processes for programs until the channel closes.

    Args:
        preload: modules to import for programs.
        library: path of the compiled loop; empty for none.
    """
    linux.use_one_arena()
    with _no_fork_handlers():
        for name in preload:
            importlib.import_module(name)
        _share_stacks()
    extra = [name for name in preload if name not in (PRELOAD + ON_DEMAND).split()]
    if extra and len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError(f"preload: one of {', '.join(extra)} starts threads when it is imported")
    server = _server(library)
    own_files = seccomp.OWN_FILES if Tier(tier) is Tier.namespaces else None
    confinement = prepare(Tier(tier), granted=own_files)
    if confinement.has_common_scratch:
        empty_scratch().make()
    plan = lru_cache(maxsize=64)(partial(fork_server.plan, confinement, channel=channel.fileno()))
    linux.adopt_orphans()
    forget_the_host()
    warnings.simplefilter("ignore")
    run_program.offer_devices()
    _rehearse(confinement)
    if gc.isenabled():  # a driver starts sooner without
        gc.collect()
    gc.freeze()
    gc.enable()
    if server is not None:
        server.collapse()
    hello = {
        "ready": True,
        "python": ".".join(map(str, sys.version_info[:3])),
        "preloaded": list(map(_with_version, extra)),
        "serves_alone": server is not None,
    }
    frames.send(channel, hello)
    zygote = os.getpid()
    alone: Plan | None = None
    within = Limits()
    """Limits of the programs that come alone."""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            if server is not None and alone is not None:
                outcome = server.serve(alone)
                if outcome in (SCRIPT, CALL):
                    _alone(server, alone, outcome, confinement, within)
                if outcome == ASTRAY:
                    end_orphans()
                    continue
            head, n = frames.receive_head(channel)
            limits = Limits(**head["limits"])
            if "sizes" not in head:  # limits for the following programs that come alone
                alone, within = plan(limits, single=True), limits
                continue
            served = (
                plan(limits, single=False) if server is not None and not head["files"] else None
            )
            room = Room.of(dict(zip(head["files"], head["sizes"][1:], strict=True)))
            prepared = ready(confinement, limits, room, served)
            pid = os.fork()
            if pid == 0:
                _program(zygote, channel, prepared, head, n, server)
            _, status = os.waitpid(pid, 0)
            end_orphans()
            done = os.waitstatus_to_exitcode(status)
            frames.send(channel, {"done": done})
            if done in (1, -signal.SIGKILL):
                break  # the host gives up, and the program may still be in the channel


def _rehearse(confinement: Confinement) -> None:
    """Run a trusted program as every test does, before tests are forked from this process.

    The interpreter fills its caches and specialises byte code as it runs. Doing that once here saves it
    in every test, where each touched page of memory is copied.
    """
    for _ in range(_REHEARSALS):
        code = _code(run_program.REHEARSED, confinement, Limits())
        assert isinstance(code, types.CodeType)
        run_program.rehearse(code)


def _with_version(name: str) -> str:
    version = getattr(sys.modules[name], "__version__", None)
    return f"{name}-{version}" if isinstance(version, str) else name


def _server(library: str) -> ForkServer | None:
    """Return the compiled loop if it loads; its file may be gone, or not fit this Python."""
    with contextlib.suppress(OSError):
        return ForkServer(library) if library else None
    return None


@contextlib.contextmanager
def _no_fork_handlers() -> Iterator[None]:
    """Keep modules that are imported in this context from registering fork handlers.

    Those of `random` and `threading` touch 150 pages, a third of a test's time. Nothing is lost: `forked`
    reseeds, and with one thread there are no locks to repair.
    """
    register = os.register_at_fork
    os.register_at_fork = lambda **_: None
    try:
        yield
    finally:
        os.register_at_fork = register


def forget_the_host() -> None:
    """Remove what a program could look up: the environment, arguments, and the path of this package."""
    package = os.environ.get("PYTHONPATH")
    sys.path[:] = [path for path in sys.path if path != package]
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", LANG="C.UTF-8", HOME="/tmp", PYTHONHASHSEED="0")
    sys.argv[:] = ["main.py"]
    for name in [name for name in sys.modules if name.startswith("coding_model_project")]:
        del sys.modules[name]


def end_orphans() -> None:
    """Kill and reap processes that outlived their P; without P, all children here are orphans."""
    children = f"/proc/self/task/{os.getpid()}/children"
    with contextlib.suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] != 0:
                continue
            with contextlib.suppress(FileNotFoundError), open(children) as file:
                for child in file.read().split():  # in namespaces they die with P
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)


# ── P ─────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def last_words() -> Iterator[None]:
    """End this process after the context, with code 1 if it raises: nothing returns to the zygote's
    frames."""
    code = 1
    try:
        with contextlib.suppress(EOFError, ConnectionError):
            yield
        code = 0
    except BaseException:  # noqa: BLE001 - no exception may return into the zygote's frames
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _program(
    zygote: int,
    channel: socket.socket,
    ready: Ready,
    head: frames.Head,
    n: int,
    server: ForkServer | None,
) -> None:
    """Receive and compile one program, and run its inputs; ends the process."""
    with last_words():
        linux.end_with(zygote)
        linux.hide_memory()
        program = _compile(channel, ready, head, n)
        served, of_test = ready.served, inputs.of_test
        compiled: Compiled | None = None
        kept: Kept | None = None
        while program is not None:
            if server is not None and served is not None and kept is None:
                kind = server.serve(served)
                if kind != UNHANDLED:
                    if compiled is not None:
                        compiled.confined.close()
                    of_test(program[0], served, kind)
            head, n = frames.receive_head(channel)
            if "end" in head:
                break
            if compiled is None:
                compiled = Compiled(
                    code=program[0], files=program[1], ready=ready, confined=mmap.mmap(-1, 2)
                )
            kept = inputs.run(channel, compiled, head, n, kept)
        if kept is not None:
            kept.close()


def _compile(
    channel: socket.socket, ready: Ready, head: frames.Head, n: int
) -> tuple[types.CodeType, dict[str, bytes]] | None:
    """Send whether the source compiles; return it and the program's files, or None if it does not."""
    source, *contents = frames.parts(frames.receive_body(channel, n), head["sizes"])
    code = _code(source, ready.confinement, ready.limits)
    if isinstance(code, str):
        frames.send(channel, {"syntax_error": code})
        return None
    with _no_fork_handlers():
        for name in _names(code).intersection(ON_DEMAND.split()):
            importlib.import_module(name)
    gc.freeze()
    frames.send(channel, {"compiled": True})
    return code, dict(zip(head["files"], contents, strict=True))


def _names(code: types.CodeType) -> set[str]:
    """Return all names in a program, those of its imports among them."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _code(source: bytes, confinement: Confinement, limits: Limits) -> types.CodeType | str:
    """Return the source, compiled within the program's own limits, or why it does not compile."""
    kinds = (
        (resource.RLIMIT_CPU, min(fork_server.COMPILE_CPU_S, 1 + int(limits.cpu_s))),
        (resource.RLIMIT_AS, confinement.base_address_space + (limits.memory_mb << 20)),
    )
    before = [resource.getrlimit(kind) for kind, _ in kinds]
    for (kind, limit), (_, hard) in zip(kinds, before, strict=True):
        resource.setrlimit(kind, (limit, hard))
    try:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    except Exception as error:  # noqa: BLE001 - RecursionError, MemoryError, SystemError, …
        return f"{type(error).__name__}: {error}"[:500]
    for (kind, _), limit in zip(kinds, before, strict=True):
        resource.setrlimit(kind, limit)
    return code


def _alone(
    server: ForkServer, plan: Plan, kind: int, confinement: Confinement, limits: Limits
) -> None:
    """Compile and run the program that came with a test, in its process, which is not yet confined;
    ends the process."""
    with last_words():
        code = _code(fork_server.read_all(SOURCE_FD), confinement, limits)
        if isinstance(code, str):
            server.refuse(plan, code)
        else:
            server.confine(plan)
            inputs.of_test(code, plan, kind)


# ── stacks ────────────────────────────────────────────────────────────────────────────────────────

_SHARED, _LEAST, _MOST = 32 << 20, 256 << 10, 8 << 20
"""Bytes of address space."""


def _share_stacks() -> None:
    """Replace the functions that start threads in this process and its forks.

    A thread takes the address space of its whole stack, 8 MiB by default. Here the nth thread takes an
    nth of `_SHARED`: the first few have as much as elsewhere, and a thousand take 360 MiB together. So as
    many threads as are allowed fit a program's memory limit.
    """
    import threading

    for module in (_thread, threading):
        for name in ("start_new_thread", "start_new", "start_joinable_thread"):
            for known in (name, f"_{name}"):
                if hasattr(module, known):
                    setattr(module, known, _sharing(getattr(module, known), threading.__file__))


def _sharing(start: Any, file: str) -> Any:
    """Return a function that starts a thread with its share, unless the program has set a size.

    Args:
        file: the file that tracebacks show, in place of this one.
    """
    size, count = _thread.stack_size, _thread._count

    def start_thread(*args: Any, **kwargs: Any) -> Any:
        own = size(0)
        size(own or min(_MOST, max(_LEAST, _SHARED // (1 + count()))))
        try:
            return start(*args, **kwargs)
        finally:
            size(own)

    start_thread.__code__ = start_thread.__code__.replace(co_filename=file)
    assert isinstance(start_thread, types.FunctionType)
    start_thread.__name__ = start_thread.__qualname__ = start.__name__
    return start_thread


if __name__ == "__main__":
    main()
