"""Time-outs for hangs of verl: a dead worker, and a weight sync that never finishes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from coding_model_project.verl_ext.cluster.nodes import cause_of

_PING_EVERY_S = 10.0
_PING_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 10.0

Fatal = Callable[[str], object]
"""A function that ends the process with a reason, from any thread."""


@contextlib.contextmanager
def watching(actors: Sequence[Any], fatal: Fatal) -> Iterator[None]:
    """Call `fatal` if one of these Ray actors dies, whose result verl would await for ever."""
    stop = threading.Event()

    def ping() -> None:
        while not stop.wait(_PING_EVERY_S):
            for actor in actors:
                try:
                    ray.get(actor.__ray_ready__.remote(), timeout=_PING_TIMEOUT_S)
                except (GetTimeoutError, ActorUnavailableError):
                    continue  # busy, or out of reach for a moment: Ray reports a death later
                except RayActorError as error:
                    if not stop.is_set():
                        fatal(cause_of(error))

    thread = threading.Thread(target=ping, name="watch-workers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()


@contextlib.contextmanager
def deadline(timeout_s: float, fatal: Fatal, reason: str) -> Iterator[None]:
    """Call `fatal` if the body does not finish in time."""
    timer = threading.Timer(timeout_s, fatal, [reason])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_process(file: Path, reason: str) -> None:
    """Write the reason into a file and end this process, from any thread, even if the disk hangs."""
    hung = threading.Timer(_END_TIMEOUT_S, os._exit, [3])  # a file system may hang
    hung.daemon = True
    hung.start()
    try:
        file.write_text(reason + "\n")
    except OSError as error:  # print the reason instead
        print(f"{file.parent}: {error.strerror}; {reason}", file=sys.stderr, flush=True)  # noqa: T201
    finally:
        os._exit(3)
