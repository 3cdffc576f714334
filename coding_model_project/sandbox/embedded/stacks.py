"""Stacks of a program's threads, so that as many threads as are allowed fit its memory limit.

A thread takes the address space of its whole stack, 8 MiB by default. Here the nth thread takes an nth of
`_SHARED`: the first few have as much as elsewhere, and a thousand take 360 MiB together.
"""

from __future__ import annotations

import _thread
import types
from typing import Any

_SHARED, _LEAST, _MOST = 32 << 20, 256 << 10, 8 << 20
"""Bytes of address space."""


def share() -> None:
    """Replace the functions that start threads in this process and its forks."""
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
