"""Runs an untrusted program inside its confined process, as the interpreter itself would."""

from __future__ import annotations

import _io
import _thread
import atexit
import contextlib
import gc
import json
import os
import resource
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from coding_model_project import codec
from coding_model_project.sandbox.embedded import callee

OUT_OF_MEMORY = 77
"""Exit code after an uncaught MemoryError, with its name at the end of standard error."""

ANSWER = 3
"""Descriptor a call's value is written to."""

_MUCH_KB = 64 << 10

READER, WRITER = 3, 4
"""Descriptors of a program that tests call: their requests, and its answers."""


def run_script(code: types.CodeType) -> NoReturn:
    """Run the program as a script."""
    _run(lambda: _namespace(code, "__main__"))


def run_call(code: types.CodeType, function: str, data: bytes) -> NoReturn:
    """Call one of the program's functions on encoded arguments and write its value."""
    _run(lambda: _answer(code, function, data))


def run_calls(code: types.CodeType, function: str, data: bytes, *, stateless: bool) -> NoReturn:
    """Call one of the program's functions several times.

    Each call writes a line: `=`, how much was printed so far, a space and its encoded value, or `!` and
    the same with what it raised.

    Args:
        data: JSON: encoded lists of arguments, in lists of those that may see what others leave in
            an object of the program's, as the asserts of one test do.
        stateless: whether to. If not, the first call is made, as by `run_call`.
    """
    if stateless:
        _run(lambda: _answer_each(code, function, data))
    _run(lambda: _answer(code, function, json.dumps(json.loads(data)[0][0]).encode()))


def run_callee(code: types.CodeType) -> NoReturn:
    """Answer the calls of tests in another process."""
    _run(lambda: callee.serve(_namespace(code, "solution"), READER, WRITER))


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
    except BaseException as error:  # noqa: BLE001 - whatever a program may raise
        exit_code = 1
        with contextlib.suppress(BaseException):
            sys.stderr.write(_traceback(error))
    _finish(exit_code)


def _namespace(code: types.CodeType, name: str) -> types.ModuleType:
    """Execute the program as a module of this name."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module


def _answer(code: types.CodeType, name: str, data: bytes) -> None:
    function = callee.find(_namespace(code, "solution"), name)
    arguments: Any = codec.loads(data)
    _write(codec.dumps(function(*arguments)))


def _answer_each(code: types.CodeType, name: str, data: bytes) -> None:
    module = _namespace(code, "solution")
    for group in json.loads(data):
        function = None
        for arguments in group:
            _collect_much()
            try:
                function = function or callee.find(module, name)
                mark, encoded = b"=", codec.dumps(function(*codec.from_json(arguments)))
            except Exception as error:
                if isinstance(error, MemoryError):
                    raise
                mark, encoded = b"!", codec.dumps(_traceback(error))
            sys.stdout.flush()
            _write(b"%b%d %b\n" % (mark, os.lseek(1, 0, os.SEEK_CUR), encoded))


def _collect_much() -> None:
    """A call that left much garbage must not leave the next one without memory."""
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MUCH_KB:
        gc.collect()


def _write(answer: bytes) -> None:
    left = memoryview(answer)
    while left:
        left = left[os.write(ANSWER, left) :]


def _traceback(error: BaseException) -> str:
    """As the interpreter prints it: without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-3))


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if type(code) is int:
        return code & 255
    with contextlib.suppress(BaseException):
        sys.stderr.write(f"{code}\n")
    return 1


def _finish(exit_code: int) -> NoReturn:
    """End as an interpreter would (threads, handlers, buffers), without returning to our frames.

    Every test comes by here, so nothing is touched that need not be: no suppress(), whose objects are
    pages of memory.
    """
    try:
        if _thread._count():
            sys.modules["threading"]._shutdown()
    except BaseException:  # noqa: BLE001 - whatever its threads and handlers do is the program's
        pass
    try:
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - whatever its threads and handlers do is the program's
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except BaseException:  # noqa: BLE001 - the stream may be the program's own object
            exit_code = exit_code or 120
    _flush_others()
    os._exit(exit_code)


def _flush_others() -> None:
    """What an interpreter would flush by freeing it: the first streams, and the program's own."""
    module = sys.modules.get("__main__")
    own = list(module.__dict__.values()) if type(module) is types.ModuleType else []
    for stream in (sys.__stdout__, sys.__stderr__, *own):
        # Not io.IOBase: what isinstance() does for an abstract class is 60 pages of memory touched.
        if (
            isinstance(stream, _io._IOBase)
            and stream is not sys.stdout
            and stream is not sys.stderr
        ):
            with contextlib.suppress(BaseException):
                stream.flush()
