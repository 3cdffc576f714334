"""SandboxFusion's `/run_code` over any `Sandbox`, for clients that speak it.

    app        the routes, the checks of every request, /metrics
    requests   requests and answers in their wire format
    running    /run_code: one program; /run_batch: many programs with many inputs, for `FusionSandbox`
    listening  capacity, a socket, uvicorn, and graceful shutdown

docs/sandboxfusion.md lists where answers differ from the original's, and why.
"""
