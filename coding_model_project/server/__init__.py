"""SandboxFusion's HTTP API over any `Sandbox`, for clients that speak it.

    app        the routes, and the checks of every request (`gate`: token, size; `admission`: capacity)
    requests   requests and answers in their wire format
    run_code   /run_code: one program, or a `FusionSandbox`'s batch
    submit     /submit: a completion judged by the rules of SandboxFusion's own data sets
               (`extraction`, `assertions`, `fusion_comparison`)
    listening  a socket, uvicorn (`bounded`), and graceful shutdown

Only this room has its own extraction and comparison, those of that API, instead of `grading`'s.
docs/sandboxfusion.md lists where answers differ from the original's, and why.
"""
