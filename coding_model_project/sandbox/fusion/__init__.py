"""A sandbox that runs programs on SandboxFusion servers.

    FusionSandbox (`client`, this process)
      └ `packing`: groups programs into requests
          └ `fleet`: chooses servers, limits concurrency, retries
              ├ POST /run_batch: this project's own server runs them in its embedded sandbox
              └ POST /run_code (`wire`), with the driver that another server has compiled
                  └ `carried.driver`, in the server: runs each program as the embedded sandbox does
                      └ one confined process per input

`carried.messages` encodes requests and decodes answers, `capabilities` probes servers.
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
