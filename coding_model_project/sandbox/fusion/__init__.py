"""Programs run by SandboxFusion servers.

    FusionSandbox (`client`, this process)
      └ `packing`: which programs share a request
          └ `fleet`: which server, how many requests at once, retries
              └ POST /run_code (`wire`), with the driver as the server has compiled it (`bundle`)
                  └ `inside.driver`, in the server: runs each program as the embedded sandbox does
                      └ one confined process per input

`driver_messages` is what goes to the driver and comes back, `capabilities` what a server can do.
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
