"""Requests that carry the driver, which each server compiles once (`carried.build`)."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from coding_model_project.isolation.carried_source import carried
from coding_model_project.sandbox.embedded import compiled_loop
from coding_model_project.sandbox.fusion import wire

ANSWER_FILE = "coding_model_project.answer"
"""File in which the driver leaves its answer, to be fetched."""

_DRIVER = (
    "coding_model_project.sandbox.carried.driver",
    "coding_model_project.sandbox.embedded.zygote",
)

_GIVEN, _CODE, _LIBRARY, _REQUEST = (
    f"coding_model_project.{suffix}" for suffix in ("json", "pyc", "so", "request")
)
_BUILD_S = 120.0

_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "PYTHONHASHSEED": "0",  # the same program gives the same output everywhere
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_OPTIONS = ("-S", "-s", "-B", "-X", "int_max_str_digits=0")
"""Options that skip `site`, the slowest part of the start; the driver makes what programs need of it."""

_BASH = """\
exec env -i {variables} ${{LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"}} \\
{command} {standard_input}
"""
"""The start of a new interpreter, since only a new one takes another hash seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver that a server has compiled."""

    python: str
    """Path of the server's interpreter."""
    files: Mapping[str, str] = field(compare=False)
    """Its files in base64, as in requests."""

    def body(self, tier: str, request: bytes, run_s: float) -> wire.Body:
        """Return the body of a request that runs programs, confined at this tier."""
        # With standard input, the server raises and logs an exception per request; a file avoids that.
        # At tier rlimit, programs of other requests could read the file.
        file = tier != "rlimit"
        carried_files = dict(self.files)
        if file:
            carried_files[_REQUEST] = base64.b64encode(request).decode()
        command = [self.python, *_OPTIONS, _CODE, tier]
        code = _BASH.format(
            variables=" ".join(f"{k}={shlex.quote(v)}" for k, v in _VARIABLES.items()),
            command=shlex.join(command),
            standard_input=f"<{_REQUEST}" if file else "",
        )
        return wire.run_code(
            code,
            "bash",
            stdin=None if file else request.decode("ascii"),
            run_s=run_s,
            files=carried_files,
            fetch_files=[ANSWER_FILE],
        )


def build_body() -> wire.Body:
    """Return the body of the request that compiles the driver."""
    files_sent = {_GIVEN: base64.b64encode(_given()).decode()}
    source = files("coding_model_project.sandbox.carried").joinpath("build.py").read_text("utf-8")
    return wire.run_code(
        source, "python", run_s=_BUILD_S, files=files_sent, fetch_files=[_CODE, _LIBRARY]
    )


def built(response: wire.Response, python: str) -> Driver | None:
    """Return the driver in the answer to `build_body`; None if there is none."""
    found = {name: response.files[name] for name in (_CODE, _LIBRARY) if name in response.files}
    return Driver(python=python, files=found) if _CODE in found else None


@lru_cache
def _given() -> bytes:
    given = {
        "sources": carried(*_DRIVER),
        "loop": compiled_loop.SOURCE.read_text("utf-8"),
        "flags": list(compiled_loop.FLAGS),
    }
    return json.dumps(given).encode("ascii")
