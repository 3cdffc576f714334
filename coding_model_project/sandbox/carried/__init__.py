"""The driver that runs programs where this package is not installed.

`build` makes it there, `driver` runs it. `sandbox.fusion.bundle` sends both to SandboxFusion servers.
"""
