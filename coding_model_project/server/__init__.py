"""SandboxFusion's HTTP API over any `Sandbox`, for clients that speak it.

    app        the routes, and what every request passes (`gate`: token, size; `admission`: capacity)
    requests   requests and answers as they are on the wire
    run_code   /run_code: one program, or a `FusionSandbox`'s batch
    submit     /submit: a completion judged by the rules of SandboxFusion's own data sets
               (`extraction`, `assertions`, `fusion_comparison`)
    listening  a socket, uvicorn, and an orderly end

This is the one place with another extraction and comparison than `grading`'s: that API's own.
docs/sandboxfusion.md says where answers differ from the original's, and why.
"""
