"""Execution of an untrusted program inside its confined process, as the interpreter itself would."""

from __future__ import annotations

import _io
import _thread
import atexit
import builtins
import contextlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from coding_model_project import codec
from coding_model_project.sandbox.embedded import callee, frames

OUT_OF_MEMORY = 77
"""Exit code after an uncaught MemoryError, with its name at the end of standard error."""

ANSWER = 3
"""Descriptor to which a call's value is written."""

READER, WRITER = 3, 4
"""Descriptors of a program that is called more than once: requests, and its answers."""


def run_script(code: types.CodeType) -> NoReturn:
    """Run the program as a script."""
    _run(lambda: _namespace(code, "__main__"))


def run_call(code: types.CodeType, function: str, data: bytes) -> NoReturn:
    """Call one of the program's functions with encoded arguments and write its value."""
    _run(lambda: _answer(code, function, data))


def run_callee(code: types.CodeType) -> NoReturn:
    """Answer the calls of tests in another process."""
    _run(lambda: callee.serve(_namespace(code, "solution"), READER, WRITER))


def run_calls(code: types.CodeType) -> NoReturn:
    """Call the program's functions as requests for that arrive, one after another, in this process."""
    _run(lambda: _answer_calls(_namespace(code, "solution")))


def _run(body: Callable[[], object]) -> NoReturn:
    exit_code = 0
    try:
        body()
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except MemoryError:
        exit_code = OUT_OF_MEMORY
        with contextlib.suppress(BaseException):
            os.write(2, b"MemoryError\n")
    except BaseException as error:  # noqa: BLE001 - a program may raise anything
        exit_code = 1
        with contextlib.suppress(BaseException):
            sys.stderr.write(_traceback(error))
    _finish(exit_code)


def _namespace(code: types.CodeType, name: str) -> types.ModuleType:
    """Execute the program as a module of this name, with the `__file__` of an interpreter's script."""
    module = types.ModuleType(name)
    folder = os.getcwd()  # noqa: PTH109 - runs in every test, and abspath() touches 20 more pages
    module.__file__ = f"{'' if folder == '/' else folder}/{code.co_filename}"
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module


def _answer(code: types.CodeType, name: str, data: bytes) -> None:
    _write(_value(_namespace(code, "solution"), name, data))


def _value(module: types.ModuleType, name: str, data: bytes) -> bytes:
    function = callee.find(module, name)
    arguments: Any = codec.loads(data)
    return codec.dumps(function(*arguments), ordered=False)


def _answer_calls(module: types.ModuleType) -> None:
    """Answer each request, a line of JSON with a name and then encoded arguments, until they end.

    An answer is `MORE`, the exit code that a process of its own would have had, and the value. As with
    the publishers of such tests, a function is looked up once, and an exception ends its call only. A
    lack of memory ends the process: the next call shall not fail for what this one holds.
    """
    found: dict[bytes, Any] = {}
    while (request := frames.next_message(READER)) is not None:
        name, _, data = request.partition(b"\n")
        exit_code, value = 0, b""
        try:
            if name not in found:
                found[name] = callee.find(module, str(codec.loads(name)))
            arguments: Any = codec.loads(data)
            value = codec.dumps(found[name](*arguments), ordered=False)
        except SystemExit as error:
            exit_code = _exit_code(error.code)
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - a program may raise anything
            exit_code = 1
            with contextlib.suppress(BaseException):
                sys.stderr.write(_traceback(error))
        exit_code = _flushed(exit_code)
        frames.send_message(WRITER, frames.MORE + bytes([exit_code]) + value)


_BLOCK = 4096
"""Bytes of the buffer of an in-memory standard input."""


def _text(binary: Any, like: Any) -> Any:
    """Return a standard stream as an interpreter opens it; on Linux it does not translate newlines."""
    stream: Any = _io.TextIOWrapper(
        binary, like.encoding, like.errors, newline="\n", line_buffering=like.line_buffering
    )
    stream.mode = like.mode
    return stream


class _Stdin(_io.BytesIO):
    name = "<stdin>"


def _write(answer: bytes) -> None:
    left = memoryview(answer)
    while left:
        left = left[os.write(ANSWER, left) :]


_OUR_FILES = {function.__code__.co_filename for function in (_write, callee.find)}
"""Not `__file__`, which is another name in an archive."""


def _traceback(error: BaseException) -> str:
    """Format an error as the interpreter does, without our frames, which would reveal our paths."""
    import traceback  # lazily, so that drivers start three milliseconds sooner

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OUR_FILES:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-3))


_STDIN = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def offer_devices() -> None:
    """Let programs open /dev/null, and standard input by its path, which is missing where they run."""
    known = builtins.open

    def open(file: Any, *arguments: Any, **keywords: Any) -> Any:
        path = file.__fspath__() if hasattr(file, "__fspath__") else file
        try:
            return known(os.dup(0) if path in _STDIN else file, *arguments, **keywords)
        except PermissionError:
            if path != os.devnull:
                raise
        # Where no file may be made, the usual way to write to it is denied.
        return known(os.open(os.devnull, os.O_RDWR), *arguments, **keywords)

    open.__code__ = open.__code__.replace(co_filename="<frozen io>")  # our path is in no traceback
    builtins.open = sys.modules["io"].open = open  # pyrefly: ignore[missing-attribute]


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if type(code) is int:
        return code & 255
    with contextlib.suppress(BaseException):
        sys.stderr.write(f"{code}\n")
    return 1


def _finish(exit_code: int) -> NoReturn:
    """End as an interpreter would, without returning to our frames."""
    os._exit(_end(exit_code))


def _end(exit_code: int) -> int:
    """Finish threads, handlers and buffers as an interpreter does, and return the exit code.

    This runs in every test, so it touches as little memory as possible: no suppress(), whose objects take
    pages.
    """
    try:
        if _thread._count():
            sys.modules["threading"]._shutdown()
    except BaseException:  # noqa: BLE001 - the program's threads and handlers may raise anything
        pass
    try:
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - the program's threads and handlers may raise anything
        pass
    exit_code = _flushed(exit_code)
    _flush_others()
    return exit_code


def _flushed(exit_code: int) -> int:
    """Flush the standard streams; return the exit code, which is another if that fails."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException:  # noqa: BLE001 - the stream may be the program's own object
            exit_code = exit_code or 120
    return exit_code


def _flush_others() -> None:
    """Flush the streams that an interpreter flushes by freeing them: the first, and the program's own."""
    module = sys.modules.get("__main__")
    own = list(module.__dict__.values()) if type(module) is types.ModuleType else []
    for stream in (sys.__stdout__, sys.__stderr__, *own):
        # Not io.IOBase: isinstance() with an abstract class touches 60 pages of memory.
        if (
            isinstance(stream, _io._IOBase)
            and stream is not sys.stdout
            and stream is not sys.stderr
        ):
            with contextlib.suppress(BaseException):
                stream.flush()


REHEARSED = b"""
import sys
from collections import defaultdict

def solve(words):
    found = defaultdict(int)
    for i, word in enumerate(words):
        found[word] += int(word) * i
    return sorted(found.items(), key=lambda item: item[1])

lines = [line.strip() for line in sys.stdin]
n, *rest = map(int, "3 1 2".split())
print(len(lines), sum(rest), *solve("1 2 3".split()))
print(f"{n:.2f}", max(rest), min(rest), sep=" ", end="\\n")
"""
"""A trusted program that does what most programs do."""


def rehearse(code: types.CodeType) -> None:
    """Run `REHEARSED` as tests run programs, then restore the previous state and return."""
    streams, main = (sys.stdin, sys.stdout, sys.stderr), sys.modules["__main__"]
    sys.stdin = _text(_io.BufferedReader(_Stdin(b"1 2\n3\n"), _BLOCK), sys.__stdin__)
    sys.stdout = sys.stderr = _text(_io.BytesIO(), sys.__stdout__)
    _value(_namespace(code, "__main__"), "solve", codec.dumps([["1", "2"]]))
    _end(0)
    (sys.stdin, sys.stdout, sys.stderr), sys.modules["__main__"] = streams, main
