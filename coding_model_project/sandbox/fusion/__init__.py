"""Programs run by SandboxFusion servers.

    FusionSandbox (`client`, this process)
      └ `fleet`: which server, how many requests at once, retries
          └ POST /run_code (`wire`): one per batch of inputs, its code the same every time (`bundle`)
              └ `driver`, in the server: runs the program on each input, as the embedded sandbox does
                  └ one confined process per input

`driver_messages` is what goes to the driver and comes back. `FusionSandbox` is imported on first use, so
that the driver, which lives in this package too, starts without the host's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coding_model_project.sandbox.fusion.client import FusionSandbox

__all__ = ["FusionSandbox"]


def __getattr__(name: str) -> object:
    if name != "FusionSandbox":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coding_model_project.sandbox.fusion import client

    return client.FusionSandbox
