"""vLLM's OpenAI-compatible server for a model, or for a training's newest checkpoint."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import httpx

from coding_model_project.errors import ConfigError, GenerationError
from coding_model_project.evaluation.backends.vllm_backend import CPU_CACHE_BYTES
from coding_model_project.handover.export import Say, Source, export, latest
from coding_model_project.isolation.child import await_end, start_child

LOCALHOST = "127.0.0.1"
_POLL_S = 2.0
_STOP_S = 30.0


def model_of(source: Source, say: Say) -> Path:
    """Return the folder for vLLM to load; shards are first merged into the run's `exports/`.

    Raises:
        CheckpointError: the shards could not be merged.
    """
    return source.model if source.is_merged else export(source, source.default_out, [], say)


def server_command(
    model: Path, names: Sequence[str], *, host: str, port: int, on_cpu: bool, more: Sequence[str]
) -> list[str]:
    """Return the command that serves a model under the given names.

    Args:
        more: further options of `vllm serve`.
    """
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--host", host, "--port", str(port), "--served-model-name", *names]
    if on_cpu:  # vLLM's CPU build rejects seeds with chunked prefill
        command += ["--no-enable-chunked-prefill", "--enforce-eager"]
        command += [f"--kv-cache-memory-bytes={CPU_CACHE_BYTES}"]
    return [*command, *more]


def follow(run: Path, command: Callable[[Path, Source], list[str]], *, say: Say) -> NoReturn:
    """Serve a training's newest checkpoint until this process is interrupted or the server ends.

    A newer checkpoint replaces the served one: it is merged first, then the server is restarted. Requests
    fail while vLLM starts.

    Args:
        command: returns a server's command for a model's folder and its source.

    Raises:
        ConfigError: there is no such run.
        SystemExit: the server ended by itself; has its exit code.
    """
    if not run.is_dir():
        raise ConfigError(f"--latest={run}: no such folder")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server: subprocess.Popen[bytes] | None = None
    served: Source | None = None
    try:
        while True:
            newest = _newest(run)
            if newest is None and served is None:
                say(f"{run}: waiting for its first checkpoint")
            while newest is None or (served is not None and newest.key == served.key):
                time.sleep(_POLL_S)
                if server is not None and (code := server.poll()) is not None:
                    raise SystemExit(code)
                newest = _newest(run)
            model = model_of(newest, say)
            if server is not None:
                _end(server)
            say(f"serving {newest.name}; a newer checkpoint will replace it; Ctrl-C stops")
            server = start_child(command(model, newest))
            served = newest
    finally:
        if server is not None:
            _end(server)


@contextmanager
def served(command: Sequence[str], port: int, log: Path) -> Iterator[str]:
    """Run a server on this machine; end it on leaving.

    Args:
        command: a command of `server_command`.
        log: file for the server's output.

    Yields:
        The clients' address, once the server answers.

    Raises:
        GenerationError: the server ended before it answered; has its last line of output.
    """
    with log.open("wb") as file:
        server = start_child(command, log=file)
    try:
        while not _answers(port):
            if (code := server.poll()) is not None:
                last = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
                raise GenerationError(f"vLLM ended with code {code} ({last:.200}); see {log}")
            time.sleep(_POLL_S / 4)
        yield f"http://{LOCALHOST}:{port}/v1"
    finally:
        _end(server)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://{LOCALHOST}:{port}/health", timeout=_POLL_S).is_success
    except httpx.HTTPError:
        return False


def _newest(run: Path) -> Source | None:
    try:
        return latest(run)
    except ConfigError:
        return None


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a server and its processes."""
    server.terminate()
    await_end(server, _STOP_S)
