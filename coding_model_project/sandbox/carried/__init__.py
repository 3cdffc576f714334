"""The driver that runs programs where this package is not installed.

`build` makes it there, `driver` runs it. `fusion.capabilities` sends both to SandboxFusion servers.
"""
