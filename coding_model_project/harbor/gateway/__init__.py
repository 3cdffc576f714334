"""An OpenAI-compatible endpoint that records tokens: any agent trains the model that it talks to.

    requests   clients' requests: validated, compared, converted for chat templates
    recorder   conversations as a tree of turns, and their training trajectories
    session    one sample's agent: its limits, its replies, its shell
    app        the routes: /v1/chat/completions, /v1/models, /v1/shell
    serving    uvicorn in the running event loop, on loopback or on a room's socket
    host       agents as processes of this machine
    agents     agents that work on a task: a command on the host or in the room, or a Python object

This package does not import verl: `verl_ext` implements `session.Policy` and `session.Codec`.
"""
