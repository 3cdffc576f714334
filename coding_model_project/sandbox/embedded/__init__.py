"""The embedded sandbox: no containers, no root, a few milliseconds per program.

    EmbeddedSandbox (`supervisor`, this process)
      └ zygote × cores (`zygote`): preloaded interpreter, entered into its tier (`confine`)
          └ one process per program, which only compiles it
              └ one process per input: confined, then runs the program

A program with a single input takes one process instead of two.

`EmbeddedSandbox` is imported on first use: the zygote is in this package too and must start without the
host's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coding_model_project.sandbox.embedded.supervisor import EmbeddedSandbox

__all__ = ["EmbeddedSandbox"]


def __getattr__(name: str) -> object:
    if name != "EmbeddedSandbox":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coding_model_project.sandbox.embedded import supervisor

    return supervisor.EmbeddedSandbox
