"""SandboxFusion's `/run_code` over any `Sandbox`, for clients that speak it.

    app        the routes, and the checks of every request (`gate`: token, size; `admission`: capacity)
    requests   requests and answers in their wire format
    run_code   /run_code: one program (`fetching`: with its files)
    run_batch  /run_batch: many programs with many inputs, for `FusionSandbox`
    measures   /metrics
    listening  a socket, uvicorn (`bounded`), and graceful shutdown

docs/sandboxfusion.md lists where answers differ from the original's, and why.
"""
