"""SandboxFusion's `/run_code` over any `Sandbox`, for clients that speak it.

    app        the routes, the checks of every request, /metrics (`admission`: capacity)
    requests   requests and answers in their wire format
    run_code   /run_code: one program
    run_batch  /run_batch: many programs with many inputs, for `FusionSandbox`
    listening  a socket, uvicorn, and graceful shutdown

docs/sandboxfusion.md lists where answers differ from the original's, and why.
"""
