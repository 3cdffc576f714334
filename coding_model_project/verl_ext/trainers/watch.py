"""Ends to what verl would wait for without end: a dead worker, and a weight sync that never finishes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError

_PING_EVERY_S = 10.0
_PING_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 10.0

Fatal = Callable[[str], object]
"""Ends the process with a reason, from any thread."""


@contextlib.contextmanager
def watching(actors: Sequence[Any], fatal: Fatal) -> Iterator[None]:
    """Call `fatal` once one of these Ray actors is dead: verl would wait for its result for ever."""
    stop = threading.Event()

    def ping() -> None:
        while not stop.wait(_PING_EVERY_S):
            for actor in actors:
                try:
                    ray.get(actor.__ray_ready__.remote(), timeout=_PING_TIMEOUT_S)
                except GetTimeoutError:
                    continue  # busy, not dead
                except RayActorError as error:
                    if not stop.is_set():
                        fatal(f"a worker died: {str(error).splitlines()[0]}")

    thread = threading.Thread(target=ping, name="watch-workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()


@contextlib.contextmanager
def deadline(timeout_s: float, fatal: Fatal, reason: str) -> Iterator[None]:
    """Call `fatal` unless what is done here ends in time."""
    timer = threading.Timer(timeout_s, fatal, [reason])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_process(file: Path, reason: str) -> None:
    """Write why into a file and end this process, from any thread and whatever the disk does."""
    hung = threading.Timer(_END_TIMEOUT_S, os._exit, [3])  # a file system may never answer
    hung.daemon = True
    hung.start()
    try:
        file.write_text(reason + "\n")
    except OSError as error:  # the console then has the reason
        print(f"{file.parent}: {error.strerror}; {reason}", file=sys.stderr, flush=True)  # noqa: T201
    finally:
        os._exit(3)
